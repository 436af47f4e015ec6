// mxkern/kernels/quantize/fake_quantize.cuh: elements as a scheme gives them back, from memory to
// memory. Codes and scales stay in registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/dequantize/dequantize.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"
#include "mxkern/kernels/device/row_grid.cuh"

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

// Where the octets of a thread lie, one below the other, and which of them exist.
template <class T>
struct FakeOctets {
  const T* x;
  T* out;
  std::int64_t x_step, out_step;   // from one to the next
  std::int64_t index, index_step;  // logical, of the first element
  int elements;                    // to the end of the row, 8 at most; 0 and less: none
  int count;                       // of octets whose rows exist

  // The octet at `column` of `row`, and those `Spacing` rows apart.
  template <int Spacing>
  __device__ __forceinline__ static FakeOctets at(const FakeQuantizeParameters& p,
                                                  std::int64_t batch, std::int64_t row,
                                                  std::int64_t column) {
    const std::int64_t rows = p.grid.rows - row, elements = p.columns - column;
    return {static_cast<const T*>(p.x) + batch * p.x_batch_stride + row * p.x_row_stride + column,
            static_cast<T*>(p.out) + batch * p.out_batch_stride + row * p.out_row_stride + column,
            Spacing * p.x_row_stride,
            Spacing * p.out_row_stride,
            (batch * p.grid.rows + row) * p.columns + column,
            Spacing * p.columns,
            static_cast<int>(elements < 8 ? elements : 8),
            static_cast<int>(ceil_div(
                rows < octets_at_once * Spacing ? rows : octets_at_once * Spacing, Spacing))};
  }

  __device__ __forceinline__ void load(bool vectors, RawOctet<T> (&raw)[octets_at_once]) const {
#pragma unroll
    for (int i = 0; i < octets_at_once; ++i) {
      raw[i] = load_guarded(x + i * x_step, i < count ? elements : 0, vectors);
    }
  }

  // All lanes of a warp call it. `are_pairs`: the octets of lanes 2 i and 2 i + 1 lie side by side,
  // and both exist or none.
  __device__ __forceinline__ void store(int i, bool vectors, bool are_pairs,
                                        const RawOctet<T>& raw) const {
    T* to = out + i * out_step;
    const int wanted = i < count ? elements : 0;
    if (are_pairs) {
      store_octet_beside(to, raw, wanted > 0);
    } else if (vectors && wanted == 8) {
      store_octet(to, raw);
    } else {
      store_elements(to, raw, wanted);
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

// The random words of octet i.
template <FakeWork W, Rounding R, class T>
__device__ __forceinline__ Philox4 fake_words(RandomWords<R>& random, const FakeOctets<T>& octets,
                                              int i) {
  if constexpr (W == FakeWork::whole) {
    const auto first = static_cast<std::uint32_t>(octets.index / Philox::elements);
    const auto step = static_cast<std::uint32_t>(octets.index_step / Philox::elements);
    return random.whole_octet(first + i * step);
  } else {
    return random.octet(octets.index + i * octets.index_step);
  }
}

// Thread blocks a multiprocessor: as many as have registers.
template <class T, Rounding R, FakeWork W>
inline constexpr int fake_blocks = [] {
  const bool is_short = R == Rounding::nearest || W == FakeWork::whole;
  return (sizeof(T) == 4 ? 2 : 3) + (is_short ? 1 : 0);
}();

// A row's blocks. A thread has an octet in each of four rows, as when they are quantized.
template <class S, class T, Rounding R, FakeWork W>
__global__ void __launch_bounds__(row_threads, (fake_blocks<T, R, W>))
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
      const auto octets = FakeOctets<T>::template at<row_spacing>(p, batch, at.first_row(), column);
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
          const Philox4 words = fake_words<W>(random, octets, i);
          const Octet codes = quantize_octet<S, R>(raw[i], scales.of_row(i), saturate, words);
          octets.store(i, p.vectors, are_pairs,
                       fake.template decoded<T>(codes, scales.byte_of_row(i)));
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < octets_at_once; ++i) {
          const Philox4 words = fake_words<W>(random, octets, i);
          Octet codes = 0;
          const std::uint8_t byte = better_of_two<S, R>(
              raw[i], lanes_amax<lanes>(octet_amax(raw[i])), fake.scaler, words, codes);
          octets.store(i, p.vectors, are_pairs, fake.template decoded<T>(codes, byte));
        }
      }
    }
  }
}

// Square blocks. A warp has one of MX, or four of NVFP4 side by side, and a lane the same octet of
// every eighth or fourth row.
template <class S>
struct FakeSquares {
  static constexpr int lanes = S::block == 16 ? 8 : 4;  // that lie side by side
  static constexpr int rows = 32 / lanes;
  static constexpr int columns = 8 * lanes;
  static constexpr int warps = row_threads / 32;
  static_assert(rows * octets_at_once == S::block);

  // The maximum over the lanes of a square.
  __device__ __forceinline__ static std::uint32_t amax(std::uint32_t own) {
    if constexpr (columns == S::block) return __reduce_max_sync(full_warp, own);
    own = lanes_amax<S::block / 8>(own);
    return lanes_amax<rows, lanes>(own);
  }
};

template <class S, class T, Rounding R, FakeWork W>
__global__ void __launch_bounds__(row_threads, (fake_blocks<T, R, W>))
    fake_quantize_squares_kernel(const __grid_constant__ FakeQuantizeParameters p) {
  using Squares = FakeSquares<S>;
  const int lane = threadIdx.x % 32;
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * Squares::warps + threadIdx.x / 32;
  const std::int64_t column = warp * Squares::columns + lane % Squares::lanes * 8;
  const bool are_pairs = are_fake_pairs<T>(p);
  wait_for_kernels_ahead();
  let_dependents_start();
  const FakeScaler<S> fake(p.options);
  RandomWords<R> random(p.options.keys, p.options.offset);
  const std::int64_t squares_down = ceil_div(p.grid.rows, S::block);
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t square = blockIdx.y; square < squares_down; square += gridDim.y) {
      const auto octets = FakeOctets<T>::template at<Squares::rows>(
          p, batch, square * S::block + lane / Squares::lanes, column);
      RawOctet<T> raw[octets_at_once];
      octets.load(p.vectors, raw);
      std::uint32_t amax = 0;
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) amax = max(amax, octet_amax(raw[i]));
      const BlockScale scale = fake.scaler.alone(Squares::amax(amax));
#pragma unroll
      for (int i = 0; i < octets_at_once; ++i) {
        const Philox4 words = fake_words<W>(random, octets, i);
        const Octet codes = quantize_octet<S, R>(raw[i], scale.multiplier, true, words);
        octets.store(i, p.vectors, are_pairs, fake.template decoded<T>(codes, scale.byte));
      }
    }
  }
}

}  // namespace mxkern::kernels
