// mxkern/kernels/fake_quantize.cuh: elements as a scheme gives them back, from memory to memory.
// Codes and scales stay in registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/dependents.cuh"
#include "mxkern/kernels/dequantize.cuh"
#include "mxkern/kernels/quantize_four.cuh"
#include "mxkern/kernels/row_grid.cuh"

namespace mxkern::kernels {

struct FakeQuantizeParameters {
  RowGrid grid;  // its octets are those of whole blocks
  const void* x;
  void* out;  // may be x
  std::int64_t columns;
  std::int64_t x_batch_stride, x_row_stride;
  std::int64_t out_batch_stride, out_row_stride;
  OctetOptions options;
  bool vectors;  // every octet of x and of out starts on 16 bytes
};

// Octets that a thread has at a time.
inline constexpr int octets_at_once = rows_per_thread;

// The scaler of one call, and what elements are multiplied by in the end.
template <class S>
struct FakeScaler {
  BlockScaler<S> scaler;
  float tensor_scale;

  __device__ __forceinline__ explicit FakeScaler(const OctetOptions& options)
      : scaler(scaler_without_table<S>(options)), tensor_scale(1.0f) {
    if constexpr (S::has_tensor_scale) tensor_scale = scaler.tensor.stored;
  }

  // The octet that codes and their scale give.
  template <class T>
  __device__ __forceinline__ RawOctet<T> decoded(Octet codes, std::uint8_t byte) const {
    if constexpr (exact_in_bfloat16<S, T>) {
      constexpr std::uint8_t nan = S::ScaleFormat::nan_byte;
      const bool is_plain =
          byte != nan && (!S::has_tensor_scale || float32::is_finite(bits_of(tensor_scale)));
      if (is_plain) return dequantize_exact_octet<S>(codes, byte, tensor_scale);
    }
    return dequantize_octet<S, T>(codes, byte, tensor_scale);
  }
};

// Where the octets of a thread lie, and which of them exist.
template <class T>
struct FakeOctets {
  const T* x[octets_at_once];
  T* out[octets_at_once];
  std::int64_t index[octets_at_once];     // logical, of the first element
  std::int64_t elements[octets_at_once];  // to the end of the row, 0 and less: none

  __device__ __forceinline__ void load(bool vectors, RawOctet<T> (&raw)[octets_at_once]) const {
#pragma unroll
    for (int i = 0; i < octets_at_once; ++i) raw[i] = load_guarded(x[i], elements[i], vectors);
  }

  // All lanes of a warp call it. `are_pairs`: the octets of lanes 2 i and 2 i + 1 lie side by side,
  // and both exist or none.
  __device__ __forceinline__ void store(int i, bool vectors, bool are_pairs,
                                        const RawOctet<T>& raw) const {
    if (are_pairs) {
      store_octet_beside(out[i], raw, elements[i] > 0);
    } else if (vectors && elements[i] >= 8) {
      store_octet(out[i], raw);
    } else {
      store_elements(out[i], raw, elements[i]);
    }
  }
};

template <class T>
__device__ __forceinline__ bool are_fake_pairs(const FakeQuantizeParameters& p) {
  return sizeof(T) == 4 && p.vectors && p.columns % 16 == 0;
}

// What a kernel is compiled for, as the code of the rest takes registers.
enum class FakeWork {
  usual,  // no 4over6
  whole,  // the same where words_are_whole, of stochastic rounding
  any
};

// The random words of an octet.
template <FakeWork W, Rounding R>
__device__ __forceinline__ void fake_words(RandomWords<R>& random, std::int64_t index,
                                           std::uint32_t (&words)[8]) {
  if constexpr (W == FakeWork::whole) {
    random.whole_octet(static_cast<std::uint32_t>(index / 4), words);
  } else {
    random.octet(index, 1, words);
  }
}

template <class T, Rounding R>
inline constexpr int fake_blocks = R == Rounding::nearest ? (sizeof(T) == 4 ? 3 : 4)
                                                          : (sizeof(T) == 4 ? 2 : 3);

// A row's blocks. A thread has an octet in each of four rows, as when they are quantized.
template <class S, class T, Rounding R, FakeWork W>
__global__ void __launch_bounds__(row_threads, (fake_blocks<T, R>))
    fake_quantize_kernel(const __grid_constant__ FakeQuantizeParameters p) {
  constexpr int lanes = S::block / 8;
  const int across = 1 << p.grid.log2_across;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1))) * 8;
  const bool are_pairs = are_fake_pairs<T>(p);
  wait_for_kernels_ahead();
  let_dependents_start();
  const FakeScaler<S> fake(p.options);
  if constexpr (W == FakeWork::any) {
    fake.scaler.fill();
    __syncthreads();
  }
  RandomWords<R> random(p.options.keys, p.options.offset);
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t group = blockIdx.y; group < p.grid.groups(); group += gridDim.y) {
      const RowPosition at(p.grid, group);
      FakeOctets<T> octets;
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) {
        const std::int64_t row = at.first_row() + i * row_spacing;
        octets.x[i] =
            static_cast<const T*>(p.x) + batch * p.x_batch_stride + row * p.x_row_stride + column;
        octets.out[i] =
            static_cast<T*>(p.out) + batch * p.out_batch_stride + row * p.out_row_stride + column;
        octets.index[i] = (batch * p.grid.rows + row) * p.columns + column;
        octets.elements[i] = at.has_row(i) ? p.columns - column : 0;
      }
      RawOctet<T> raw[octets_at_once];
      octets.load(p.vectors, raw);
      if constexpr (W != FakeWork::any) {
        PackedAmax<T> amax[octets_at_once];
        packed_amax(raw, amax);
        const SharedScales<S> scales(amax, WithoutTable<S>{fake.scaler});
        const bool saturate = R == Rounding::stochastic
                                  ? fake.scaler.saturates()
                                  : scales.template saturate<Rounding::nearest>(fake.scaler);
#pragma unroll
        for (int i = 0; i < octets_at_once; ++i) {
          std::uint32_t words[8] = {};
          fake_words<W>(random, octets.index[i], words);
          const Octet codes = quantize_octet<S, R>(raw[i], scales.of_row(i), saturate, words);
          octets.store(i, p.vectors, are_pairs,
                       fake.template decoded<T>(codes, scales.byte_of_row(i)));
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < octets_at_once; ++i) {
          std::uint32_t words[8] = {};
          fake_words<W>(random, octets.index[i], words);
          Octet codes = 0;
          const std::uint8_t byte = better_of_two<S, R>(
              raw[i], lanes_amax<lanes>(octet_amax(raw[i])), fake.scaler, words, codes);
          octets.store(i, p.vectors, are_pairs, fake.template decoded<T>(codes, byte));
        }
      }
    }
  }
}

// Square blocks. A warp has 32 octets of a block at a time: of MX, 8 of its 32 rows, four times; of
// NVFP4 a whole block of 16, and the three to the right of it.
template <class S>
struct FakeSquares {
  static constexpr int lanes = S::block / 8;
  static constexpr int rows = 32 / lanes;
  static constexpr int squares = rows == S::block ? octets_at_once : 1;  // of a warp
  static constexpr int columns = squares * S::block;                     // of a warp
  static constexpr int warps = row_threads / 32;

  // The scale that a lane works out: of the one square, or of one of four.
  __device__ __forceinline__ static BlockScale own_scale(
      const BlockScaler<S>& scaler, const std::uint32_t (&amax)[octets_at_once]) {
    if constexpr (squares == 1) return scaler.alone(amax[0]);
    const std::uint32_t low = threadIdx.x % 2 == 0 ? amax[0] : amax[1];
    const std::uint32_t high = threadIdx.x % 2 == 0 ? amax[2] : amax[3];
    return scaler.alone(threadIdx.x % 4 < 2 ? low : high);
  }

  // From those, the scale of octet i's square.
  __device__ __forceinline__ static BlockScale scale_of(const BlockScale& own, int i) {
    if constexpr (squares == 1) return own;
    const std::uint32_t byte = own.byte;
    return {static_cast<std::uint8_t>(__shfl_sync(full_warp, byte, i)),
            __shfl_sync(full_warp, own.multiplier, i)};
  }
};

template <class S, class T, Rounding R, FakeWork W>
__global__ void __launch_bounds__(row_threads, (fake_blocks<T, R>))
    fake_quantize_squares_kernel(const __grid_constant__ FakeQuantizeParameters p) {
  using Squares = FakeSquares<S>;
  const int lane = threadIdx.x % 32;
  const std::int64_t first_column =
      (static_cast<std::int64_t>(blockIdx.x) * Squares::warps + threadIdx.x / 32) *
          Squares::columns +
      lane % Squares::lanes * 8;
  const bool are_pairs = are_fake_pairs<T>(p);
  wait_for_kernels_ahead();
  let_dependents_start();
  const FakeScaler<S> fake(p.options);
  RandomWords<R> random(p.options.keys, p.options.offset);
  const std::int64_t squares_down = ceil_div(p.grid.rows, S::block);
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t square = blockIdx.y; square < squares_down; square += gridDim.y) {
      FakeOctets<T> octets;
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) {
        const bool is_right = Squares::squares > 1;
        const std::int64_t row =
            square * S::block + lane / Squares::lanes + (is_right ? 0 : i * Squares::rows);
        const std::int64_t column = first_column + (is_right ? i * S::block : 0);
        octets.x[i] =
            static_cast<const T*>(p.x) + batch * p.x_batch_stride + row * p.x_row_stride + column;
        octets.out[i] =
            static_cast<T*>(p.out) + batch * p.out_batch_stride + row * p.out_row_stride + column;
        octets.index[i] = (batch * p.grid.rows + row) * p.columns + column;
        octets.elements[i] = row < p.grid.rows ? p.columns - column : 0;
      }
      RawOctet<T> raw[octets_at_once];
      octets.load(p.vectors, raw);
      std::uint32_t amax[octets_at_once];
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) amax[i] = octet_amax(raw[i]);
      if constexpr (Squares::squares == 1) {
        amax[0] = max(max(amax[0], amax[1]), max(amax[2], amax[3]));
      }
#pragma unroll
      for (int i = 0; i < Squares::squares; ++i) amax[i] = __reduce_max_sync(full_warp, amax[i]);
      const BlockScale scale = Squares::own_scale(fake.scaler, amax);
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) {
        const BlockScale of_square = Squares::scale_of(scale, i);
        std::uint32_t words[8] = {};
        fake_words<W>(random, octets.index[i], words);
        const Octet codes = quantize_octet<S, R>(raw[i], of_square.multiplier, true, words);
        octets.store(i, p.vectors, are_pairs, fake.template decoded<T>(codes, of_square.byte));
      }
    }
  }
}

}  // namespace mxkern::kernels
