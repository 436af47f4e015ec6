// mxkern/kernels/gemm/hopper/epilogue.cuh: from sums in registers to the output: scales, bias,
// rounding.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/hopper/factors.cuh"
#include "mxkern/kernels/gemm/hopper/store.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"

namespace mxkern::kernels {

// A warp finishes its part of a tile of Rows x Columns: 16 rows. Warps store on their own; Slots
// chunks may be on their way. What most products ask for has code of its own: nothing else is done
// meanwhile, and each instruction of it takes its time once a tile.
// Rounded: which sums may be rounded before they are multiplied by powers of two.
// Grouped: rows of a tile may belong to another one.
template <int Rows, int Columns, int Slots, RoundedFirst Rounded, bool Transposed,
          bool Grouped = false>
struct Finish {
  static constexpr int slots = Slots;
  static constexpr int loads = Transposed ? 0 : Slots;  // barriers of a warp
  static constexpr int chunk = WarpChunk::columns;
  static constexpr int chunks = Columns / chunk;
  static_assert(chunks % Slots == 0, "a chunk's slot is known when it is compiled");
  static constexpr int staging_bytes = Slots * WarpChunk::bytes;  // of a warp
  using Factors = TileFactors<Rows, Columns, Transposed>;
  using Output =
      std::conditional_t<Transposed, TransposedOutput<Slots>, StraightOutput<Slots, Grouped>>;
  using Sums = float[Columns / 2];
  using Chunk = WarpChunk::Values;
  using Words = WarpChunk::Words;

  const FinishParameters& p;
  Output output;

  // `load_barriers`: of the warp, one a slot.
  __device__ __forceinline__ Finish(const FinishParameters& parameters, const CUtensorMap& map,
                                    unsigned char* staging, std::uint32_t load_barriers,
                                    int lane_of_warp)
      : p(parameters),
        output{parameters, map, staging, lane_of_warp, load_barriers},
        lane(lane_of_warp) {}

  // Ahead of a tile's products, or never: asks for the first boxes of what these are added to.
  __device__ __forceinline__ void begin(const TileCorner& corner, int row_in_tile) {
    if constexpr (!Transposed) {
      if (p.beta == 0.0f || !p.stores_boxes) return;
      if (p.dtype == DType::float32) {
        ask_first<float>(corner, row_in_tile);
      } else {
        ask_first<std::uint16_t>(corner, row_in_tile);
      }
      has_asked = true;
    }
  }

  // The warp's sums of a tile. Its first row lies `row_in_tile` below the tile's.
  __device__ __forceinline__ void tile(const Sums& sums, const Factors& factors, int row_in_tile) {
    const bool has_powers = factors.way == FinishWay::by_powers;
    if constexpr (Rounded != RoundedFirst::none) {
      if (has_powers && (Rounded == RoundedFirst::all || are_large(sums))) {
        by_powers(sums, factors, row_in_tile);
        return;
      }
    }
    if (has_powers || factors.way == FinishWay::boxes_of_bfloat16) {
      in_boxes<DType::bfloat16>(sums, factors, row_in_tile);
    } else if (factors.way == FinishWay::boxes_of_float16) {
      in_boxes<DType::float16>(sums, factors, row_in_tile);
    } else {
      in_any_way(sums, factors, row_in_tile);
    }
  }

  // Before the block's memory goes away.
  __device__ __forceinline__ void wait() const { output.wait(); }

 private:
  int lane;
  bool has_asked = false;  // for the first boxes of a tile

  template <class T>
  static constexpr int boxes = Columns / OutputBox<T>::columns;

  template <class T>
  __device__ __forceinline__ void ask_first(const TileCorner& corner, int row_in_tile) const {
#pragma unroll
    for (int box = 0; box < lower_of(Slots, boxes<T>); ++box) {
      output.template ask<T>(corner, row_in_tile, box);
    }
  }

  // This lane's values of a chunk, finished.
  __device__ __forceinline__ void make(Chunk& values, const Sums& sums, const Factors& factors,
                                       int row_in_tile, int c) const {
    take(values, sums, c);
    scale(values, factors, row_in_tile, c);
  }

  // sum * factor + bias, as it has to be for this lane's values of a chunk.
  __device__ __forceinline__ void scale(Chunk& values, const Factors& factors, int row_in_tile,
                                        int c) const {
    const float* own = factors.rows + row_in_tile + lane / 4;
    const float row_factors[2] = {own[0], own[8]};
    [[maybe_unused]] float row_biases[2];
    if constexpr (Transposed) {
      row_biases[0] = factors.bias[row_in_tile + lane / 4];
      row_biases[1] = factors.bias[row_in_tile + lane / 4 + 8];
    }
    std::uint32_t powers[4];
#pragma unroll
    for (int i = 0; i < chunk / 8; ++i) {  // 8 columns each
      if (i % 4 == 0) factors.load_powers(powers, c * 2 + i / 4, lane);
      const float2 column = unpack_pair(DType::bfloat16, powers[i % 4]);
      float2 added;
      if constexpr (!Transposed) {
        const float* bias = factors.bias + c * chunk + i * 8 + lane % 4 * 2;
        added = *reinterpret_cast<const float2*>(bias);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Transposed) added = make_float2(row_biases[half], row_biases[half]);
        float* pair = values + i * 4 + half * 2;
        pair[0] = __fmaf_rn(pair[0], row_factors[half] * column.x, added.x);
        pair[1] = __fmaf_rn(pair[1], row_factors[half] * column.y, added.y);
      }
    }
  }

  // Whether all sums of the warp are 1 and more; NaN is.
  __device__ __forceinline__ static bool are_large(const Sums& sums) {
    constexpr std::uint32_t magnitude = 0x7FFFu, one = 0x3F80u;
    std::uint32_t least[4] = {};
#pragma unroll
    for (int i = 0; i < Columns / 4; ++i) {
      const std::uint32_t pair = pack_pair(DType::bfloat16, sums[i * 2], sums[i * 2 + 1]);
      least[i % 4] = i < 4 ? pair : ptx::smaller_magnitudes(least[i % 4], pair);
    }
    const std::uint32_t all = ptx::smaller_magnitudes(ptx::smaller_magnitudes(least[0], least[1]),
                                                      ptx::smaller_magnitudes(least[2], least[3]));
    return __all_sync(0xFFFFFFFFu, (all & magnitude) >= one && (all >> 16 & magnitude) >= one);
  }

  // In bfloat16, two values at a time: nothing is lost by powers of two.
  __device__ __forceinline__ void by_powers(const Sums& sums, const Factors& factors,
                                            int row_in_tile) const {
    const float* own = factors.rows + row_in_tile + lane / 4;
    const auto power_of = [](float row) { return __byte_perm(__float_as_uint(row), 0, 0x3232); };
    const std::uint32_t rows[2] = {power_of(own[0]), power_of(own[8])};
    store_chunks(factors.corner, row_in_tile, [&](Words& words, int c) {
      const float* values = sums + c * (chunk / 2);
#pragma unroll
      for (int side = 0; side < 2; ++side) {  // 32 columns each
        std::uint32_t powers[4];
        factors.load_powers(powers, c * 2 + side, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int at = side * 8 + i;
          words[at] = pack_pair(DType::bfloat16, values[at * 2], values[at * 2 + 1]);
          words[at] = ptx::multiply_pair(words[at], powers[i / 2]);
          words[at] = ptx::multiply_pair(words[at], rows[i % 2]);
        }
      }
    });
  }

  template <DType To>
  __device__ __forceinline__ void in_boxes(const Sums& sums, const Factors& factors,
                                           int row_in_tile) const {
    store_chunks(factors.corner, row_in_tile, [&](Words& words, int c) {
      Chunk values;
      make(values, sums, factors, row_in_tile, c);
      round<To>(words, values);
    });
  }

  // What make(words, c) makes of a chunk. The next one's is made while what was put in shared
  // memory is on its way there.
  template <class Make>
  __device__ __forceinline__ void store_chunks(TileCorner corner, int row_in_tile,
                                               Make&& make) const {
    Words words;
    make(words, 0);
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      output.template put<std::uint16_t>(words, corner, row_in_tile, c);
      if (c + 1 < chunks) make(words, c + 1);
      output.template send<std::uint16_t>(corner, row_in_tile, c);
    }
  }

  __device__ __forceinline__ void in_any_way(const Sums& sums, const Factors& factors,
                                             int row_in_tile) {
    if constexpr (!Transposed) {
      if (factors.way == FinishWay::other_boxes) {
        if (p.beta == 0.0f) {
          in_boxes_of_float32(sums, factors, row_in_tile);
        } else if (p.dtype == DType::float32) {
          add_to_output<DType::float32>(sums, factors, row_in_tile);
        } else if (p.dtype == DType::bfloat16) {
          add_to_output<DType::bfloat16>(sums, factors, row_in_tile);
        } else {
          add_to_output<DType::float16>(sums, factors, row_in_tile);
        }
        return;
      }
    }
    if constexpr (!Transposed) {
      if (has_asked) forget();
    }
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Chunk values;
      take(values, sums, c);
      if (factors.way == FinishWay::slowly) {
        finish_slowly(values, factors, row_in_tile, c * chunk);
      } else if constexpr (Transposed) {
        scale(values, factors, row_in_tile, c);
        output.store(values, factors.corner, row_in_tile, c);
      }
    }
  }

  // Boxes that were asked for, and are not needed.
  __device__ __forceinline__ void forget() {
    const int asked = p.dtype == DType::float32 ? lower_of(Slots, boxes<float>)
                                                : lower_of(Slots, boxes<std::uint16_t>);
    for (int box = 0; box < asked; ++box) output.wait_for(box);
    has_asked = false;
  }

  __device__ __forceinline__ void in_boxes_of_float32(const Sums& sums, const Factors& factors,
                                                      int row_in_tile) const {
    const TileCorner corner = factors.corner;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Chunk values;
      make(values, sums, factors, row_in_tile, c);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        Words words;
        round<DType::float32>(words, values + side * (chunk / 4));
        output.template put<float>(words, corner, row_in_tile, c * 2 + side);
        output.template send<float>(corner, row_in_tile, c * 2 + side);
      }
    }
  }

  // values + beta * out. What the output was comes box by box to where it is stored from.
  template <DType To>
  __device__ __forceinline__ void add_to_output(const Sums& sums, const Factors& factors,
                                                int row_in_tile) {
    using T = std::conditional_t<To == DType::float32, float, std::uint16_t>;
    constexpr int chunk_boxes = chunk / OutputBox<T>::columns;
    constexpr int box_values = chunk / 2 / chunk_boxes;  // of a lane
    const TileCorner corner = factors.corner;
    if (!has_asked) ask_first<T>(corner, row_in_tile);
    has_asked = false;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      Chunk values;
      make(values, sums, factors, row_in_tile, c);
#pragma unroll
      for (int side = 0; side < chunk_boxes; ++side) {
        const int box = c * chunk_boxes + side, next = box - 1 + Slots;
        if (box > 0 && next < boxes<T>) output.template ask<T>(corner, row_in_tile, next);
        float* own = values + side * box_values;
        Words words;
        output.template take<T>(words, box);
#pragma unroll
        for (int i = 0; i < box_values; i += 2) {
          const float2 before = pair_of<To>(words, i);
          own[i] = __fmaf_rn(p.beta, before.x, own[i]);
          own[i + 1] = __fmaf_rn(p.beta, before.y, own[i + 1]);
        }
        round<To>(words, own);
        output.template replace<T>(words, box);
        output.template send<T>(corner, row_in_tile, box);
      }
    }
  }

  __device__ __forceinline__ static void take(Chunk& values, const Sums& sums, int c) {
#pragma unroll
    for (int i = 0; i < chunk / 2; ++i) values[i] = sums[c * (chunk / 2) + i];
  }

  // For what is rare, by a loop instead of straight code, which would be long: extreme exponents
  // and outputs whose rows do not start on 16 bytes. Values pass through shared memory, which a
  // loop can index, and where a row's values are neighbours.
  __device__ __forceinline__ void finish_slowly(const Chunk& values, const Factors& factors,
                                                int row_in_tile, int column_in_tile) const {
    const auto [first_row, first_column, batch] = factors.corner;
    auto* staged = reinterpret_cast<float*>(output.staging);
    wait();
    __syncwarp();
#pragma unroll
    for (int side = 0; side < 2; ++side) {  // 32 columns each
#pragma unroll
      for (int i = 0; i < chunk / 4; ++i) {
        staged[i * 32 + lane] = values[side * (chunk / 4) + i];
      }
      __syncwarp();
      const int own_column = column_in_tile + side * 32 + lane;
      const std::int64_t column = std::int64_t{first_column} + own_column;
#pragma unroll 4
      for (int i = 0; i < WarpChunk::rows; ++i) {
        const std::int64_t row = std::int64_t{first_row} + row_in_tile + i;
        if (row >= output.end_of_rows() || column >= p.columns) continue;
        // Where the fragment of a warpgroup's product has the element.
        const int value_index = lane / 8 * 4 + i / 8 * 2 + lane % 2;
        float value = staged[value_index * 32 + i % 8 * 4 + lane % 8 / 2];
        const float bias = factors.bias[Transposed ? row_in_tile + i : own_column];
        if (factors.is_easy) {
          const float factor = factors.rows[row_in_tile + i] * factors.power_of(own_column);
          value = __fmaf_rn(value, factor, bias);
        } else {
          const RowFactor factor{factors.common.fraction,
                                 factors.common.exponent + factors.row_exponents[row_in_tile + i]};
          value = factor.hard(value, right_exponent(p, column, batch)) + bias;
        }
        const std::int64_t index = output.index(row, column, batch);
        if (p.beta != 0.0f) {
          value = __fmaf_rn(p.beta, load_as_float(p.out, p.dtype, index), value);
        }
        store_from_float(p.out, p.dtype, index, value);
      }
      __syncwarp();
    }
  }

  // The words of a box of values.
  template <DType To>
  __device__ __forceinline__ static void round(Words& words, const float* values) {
#pragma unroll
    for (int i = 0; i < chunk / 4; ++i) {
      if constexpr (To == DType::float32) {
        words[i] = __float_as_uint(values[i]);
      } else {
        words[i] = pack_pair(To, values[i * 2], values[i * 2 + 1]);
      }
    }
  }

  // Values i and i + 1 of a box.
  template <DType To>
  __device__ __forceinline__ static float2 pair_of(const Words& words, int i) {
    if constexpr (To == DType::float32) {
      return make_float2(__uint_as_float(words[i]), __uint_as_float(words[i + 1]));
    } else {
      return unpack_pair(To, words[i / 2]);
    }
  }
};

}  // namespace mxkern::kernels
