// mxkern/kernels/any/quantize.cuh: quantization by schemes that are known at run time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/elements.cuh"

namespace mxkern::kernels {

inline constexpr int any_threads = 256;

// Blocks of one row and of 8 to 256 elements, a power of two: their lanes lie side by side in a
// warp, eight elements each. Codes and scales, or values.
template <class T, bool fake>
__global__ void __launch_bounds__(any_threads)
    any_rows_kernel(const __grid_constant__ AnyQuantizeParameters<AnyWordOf<T>> p) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  const int lanes = static_cast<int>(p.block / any_elements);  // of a block
  const std::int64_t across = ceil_div(p.shape.columns, p.block);
  const std::int64_t threads_of_row = across * lanes;
  const std::int64_t lines = p.shape.batch * p.shape.rows;
  const std::int64_t total = lines * threads_of_row;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * any_threads;
  // Whole warps go on together, as they shuffle.
  for (std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * any_threads; start < total;
       start += step) {
    const std::int64_t thread = start + threadIdx.x;
    const bool is_there = thread < total;
    std::int64_t line = 0, of_row = 0;
    if (total <= 0x7FFFFFFF) {
      const auto small = static_cast<std::uint32_t>(is_there ? thread : 0);
      line = small / static_cast<std::uint32_t>(threads_of_row);
      of_row = small % static_cast<std::uint32_t>(threads_of_row);
    } else if (is_there) {
      line = thread / threads_of_row;
      of_row = thread % threads_of_row;
    }
    const std::int64_t batch = p.shape.batch == 1 ? 0 : line / p.shape.rows;
    const std::int64_t row = line - batch * p.shape.rows;
    const std::int64_t column = of_row * any_elements;
    const std::int64_t left = is_there ? p.shape.columns - column : 0;
    const int count = static_cast<int>(left < 0 ? 0 : left < any_elements ? left : any_elements);
    Float x[any_elements];
    any_load_eight(any_at<const T>(p.x, batch, row, count == 0 ? 0 : column), count, p.x_on_16, x);
    Word amax = 0;
#pragma unroll
    for (int i = 0; i < any_elements; ++i) {
      amax = higher_of<Word>(amax, bits_of(x[i]) & (~Word{0} >> 1));
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
      amax = higher_of<Word>(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
    }
    if (!is_there) continue;  // only in the last round
    const TensorScale tensor = any_tensor(p, line);
    const std::int64_t block = of_row / lanes;
    const AnyBlockScale scale = any_scale(p, amax, tensor, line * across + block);
    if (p.tensor_scale != nullptr && of_row == 0 &&
        (line == 0 || p.scheme.tensor_scales == TensorScales::row)) {
      p.tensor_scale[line] = tensor.stored;
    }
    std::uint32_t codes[any_elements];
#pragma unroll
    for (int i = 0; i < any_elements; ++i) {
      const Float scaled = x[i] * static_cast<Float>(scale.multiplier);
      const Word random = p.is_stochastic ? any_random(p, batch, row, column + i) : 0u;
      if constexpr (fake) {
        const Float value =
            any_rounded(p.way, p.decoder, scaled, random) * static_cast<Float>(scale.value);
        x[i] = p.scheme.has_tensor_scale() ? value * static_cast<Float>(tensor.stored) : value;
      } else {
        codes[i] = static_cast<std::uint32_t>(any_code(p.way, scaled, random));
        if (i >= count) codes[i] = 0;
      }
    }
    if constexpr (fake) {
      if (count > 0) {
        any_store_eight(any_at<T>(p.values, batch, row, column), count, p.values_on_16, x);
      }
    } else {
      const int bits = p.scheme.element.stored_bits();
      any_store_codes(p.codes + line * p.scheme.code_row_bytes(p.shape.columns) + of_row * bits,
                      bits, codes, count, p.codes_on_word);
      if (of_row % lanes == 0) {
        const ScaleIndex index = p.scheme.scale_index(p.shape, p.layout);
        any_store_scale(p.scales, p.scheme.scale.stored_bits(),
                        batch * index.size() + index.offset(row, block), scale.code);
      }
    }
  }
}

// The best of a scale and its two neighbours: 16 threads sum the errors at positions modulo 16.
template <class T>
__device__ AnyBlockScale any_best_scale(const AnyQuantizeParameters<AnyWordOf<T>>& p,
                                        const AnyBlockScale& first, const TensorScale& tensor,
                                        const T* x, std::int64_t rows, std::int64_t columns,
                                        AnyFloatOf<T>* errors) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  constexpr int parts = 16;
  AnyBlockScale best = first;
  Float least = 0;
  for (int candidate = 0; candidate < 3; ++candidate) {
    const AnyBlockScale scale =
        candidate == 0
            ? first
            : p.scaler.of_code(p.scaler.neighbour(first.code, 2 * (candidate - 1) - 1), tensor);
    const Float ratio = static_cast<Float>(first.value == 0.0f ? 1.0f : scale.value / first.value);
    if (threadIdx.x < parts) {
      Float sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = threadIdx.x; c < columns; c += parts) {
          const Float value = any_load(x[r * p.x.row_stride + c]);
          const Float decoded =
              any_rounded<Word>(p.chooser, p.decoder, value * static_cast<Float>(scale.multiplier),
                                Word{0}) *
              ratio;
          const Float error = value * static_cast<Float>(first.multiplier) - decoded;
          sum = sum + error * error;
        }
      }
      errors[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int stride = parts / 2; stride > 0; stride /= 2) {
      if (threadIdx.x < stride) errors[threadIdx.x] += errors[threadIdx.x + stride];
      __syncthreads();
    }
    const Float error = errors[0];
    __syncthreads();
    if (candidate == 0 || error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// Blocks of any extents, a thread block each: scales, or values.
template <class T>
__global__ void __launch_bounds__(any_threads)
    any_blocks_kernel(const __grid_constant__ AnyQuantizeParameters<AnyWordOf<T>> p) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  __shared__ Word largest[any_threads / 32];
  __shared__ Float errors[16];
  const std::int64_t across = ceil_div(p.shape.columns, p.block);
  const std::int64_t bands = ceil_div(p.shape.rows, p.group);
  for (std::int64_t i = blockIdx.x; i < p.shape.batch * bands * across; i += gridDim.x) {
    const std::int64_t block = i % across, band = i / across % bands, batch = i / (across * bands);
    const std::int64_t row = band * p.group, column = block * p.block;
    const std::int64_t rows = lower_of(p.group, p.shape.rows - row);
    const std::int64_t columns = lower_of(p.block, p.shape.columns - column);
    const T* x = any_at<const T>(p.x, batch, row, column);
    Word amax = 0;
    for (std::int64_t j = threadIdx.x; j < rows * columns; j += blockDim.x) {
      const std::int64_t r = rows == 1 ? 0 : j / columns, c = j - r * columns;
      amax = higher_of<Word>(amax, bits_of(any_load(x[r * p.x.row_stride + c])) & (~Word{0} >> 1));
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      amax = higher_of<Word>(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
    }
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = amax;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) {
      amax = higher_of<Word>(amax, largest[warp]);
    }
    __syncthreads();
    const std::int64_t line = batch * p.shape.rows + row;
    const TensorScale tensor = any_tensor(p, line);
    if (p.tensor_scale != nullptr && threadIdx.x == 0 && block == 0 &&
        (line == 0 || p.scheme.tensor_scales == TensorScales::row)) {
      p.tensor_scale[line] = tensor.stored;
    }
    const std::int64_t scale_rows = p.square ? rows : 1;
    const std::int64_t scale_row = p.square ? row : band;
    const ScaleIndex plain = p.scheme.scale_index(p.shape, ScaleLayout::row_major);
    AnyBlockScale scale =
        any_scale(p, amax, tensor, batch * plain.size() + plain.offset(scale_row, block));
    if (p.scale_options.mse && p.given_scales == nullptr && scale.value == scale.value) {
      scale = any_best_scale<T>(p, scale, tensor, x, rows, columns, errors);
    }
    if (p.scales != nullptr) {
      const ScaleIndex index = p.scheme.scale_index(p.shape, p.layout);
      for (std::int64_t r = threadIdx.x; r < scale_rows; r += blockDim.x) {
        any_store_scale(p.scales, p.scheme.scale.stored_bits(),
                        batch * index.size() + index.offset(scale_row + r, block), scale.code);
      }
    }
    if (p.values.data == nullptr) continue;
    T* const values = any_at<T>(p.values, batch, row, column);
    for (std::int64_t j = threadIdx.x; j < rows * columns; j += blockDim.x) {
      const std::int64_t r = rows == 1 ? 0 : j / columns, c = j - r * columns;
      const Word random = p.is_stochastic ? any_random(p, batch, row + r, column + c) : 0u;
      const Float scaled =
          any_load(x[r * p.x.row_stride + c]) * static_cast<Float>(scale.multiplier);
      const Float value =
          any_rounded(p.way, p.decoder, scaled, random) * static_cast<Float>(scale.value);
      values[r * p.values.row_stride + c] = any_stored<T>(
          p.scheme.has_tensor_scale() ? value * static_cast<Float>(tensor.stored) : value);
    }
  }
}

// Elements under scales that are there: those that any_blocks_kernel left, or that of the whole
// tensor, which follows from whole_amax. Codes, or values; eight elements of a row a thread.
template <class T>
__global__ void __launch_bounds__(any_threads)
    any_encode_kernel(const __grid_constant__ AnyQuantizeParameters<AnyWordOf<T>> p) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  const int bits = p.scheme.element.stored_bits();
  const std::int64_t row_bytes = p.scheme.code_row_bytes(p.shape.columns);
  // Packed codes go on to the end of a block.
  const std::int64_t threads_of_row =
      bits < 8 && p.codes != nullptr ? ceil_div(row_bytes, bits) : ceil_div(p.shape.columns, 8);
  const std::int64_t total = p.shape.batch * p.shape.rows * threads_of_row;
  const ScaleIndex index = p.scheme.scale_index(p.shape, p.layout);
  const int scale_bits = p.scheme.scale.stored_bits();
  for (std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * any_threads + threadIdx.x;
       thread < total; thread += static_cast<std::int64_t>(gridDim.x) * any_threads) {
    const std::int64_t line = thread / threads_of_row;
    const std::int64_t batch = line / p.shape.rows, row = line % p.shape.rows;
    const std::int64_t column = thread % threads_of_row * any_elements;
    const std::int64_t left = p.shape.columns - column;
    const int count = static_cast<int>(left < 0 ? 0 : left < any_elements ? left : any_elements);
    Float x[any_elements];
    any_load_eight(any_at<const T>(p.x, batch, row, count == 0 ? 0 : column), count, p.x_on_16, x);
    const TensorScale tensor = any_tensor(p, line);
    AnyBlockScale scale = {};
    if (p.whole_amax != nullptr) {
      const std::uint32_t amax = bits_of(*p.whole_amax);
      scale = !float32::is_finite(amax) ? p.scaler.poisoned()
              : p.given_scales != nullptr
                  ? p.scaler.of_code(any_load_scale(p.given_scales, scale_bits, 0), tensor)
              : p.block_amaxes != nullptr
                  ? p.scaler.of_amax(bits_of(p.block_amaxes[0]) & float32::magnitude_mask, tensor)
                  : p.scaler.of_amax(amax, tensor);
      if (thread == 0 && p.scales != nullptr) any_store_scale(p.scales, scale_bits, 0, scale.code);
      if (thread == 0 && p.tensor_scale != nullptr) *p.tensor_scale = tensor.stored;
    }
    std::int64_t end = column;  // of the block whose scale it is
    std::uint32_t codes[any_elements];
#pragma unroll
    for (int i = 0; i < any_elements; ++i) {
      codes[i] = 0;
      if (i >= count) continue;
      if (p.whole_amax == nullptr && column + i >= end) {
        const std::int64_t block = (column + i) / p.block;
        const std::int64_t scale_row = p.square ? row : row / p.group;
        scale =
            p.scaler.of_code(any_load_scale(p.scales, scale_bits,
                                            batch * index.size() + index.offset(scale_row, block)),
                             tensor);
        end = (block + 1) * p.block;
      }
      const Word random = p.is_stochastic ? any_random(p, batch, row, column + i) : 0u;
      const Float scaled = x[i] * static_cast<Float>(scale.multiplier);
      if (p.codes != nullptr) {
        codes[i] = static_cast<std::uint32_t>(any_code(p.way, scaled, random));
      } else {
        const Float value =
            any_rounded(p.way, p.decoder, scaled, random) * static_cast<Float>(scale.value);
        x[i] = p.scheme.has_tensor_scale() ? value * static_cast<Float>(tensor.stored) : value;
      }
    }
    if (p.codes == nullptr) {
      any_store_eight(any_at<T>(p.values, batch, row, column), count, p.values_on_16, x);
      continue;
    }
    // The last bytes of a packed row may be fewer than eight codes'.
    std::uint8_t* const target = p.codes + line * row_bytes + column * bits / 8;
    const std::int64_t room = row_bytes - column * bits / 8;
    if (bits < 8 && room < bits) {
      std::uint64_t word = 0;
      for (int i = 0; i < any_elements; ++i) word |= std::uint64_t{codes[i]} << (bits * i);
      for (std::int64_t i = 0; i < room; ++i)
        target[i] = static_cast<std::uint8_t>(word >> (8 * i));
    } else {
      any_store_codes(target, bits, codes, count, p.codes_on_word);
    }
  }
}

// The largest magnitude of a tensor, or of each row, as float32.
template <class T>
__global__ void __launch_bounds__(any_threads) any_amax_kernel(const AnyAmaxParameters p) {
  using Word = AnyWordOf<T>;
  __shared__ std::uint32_t largest[any_threads / 32];
  const std::int64_t lines = p.shape.batch * p.shape.rows;
  std::uint32_t amax = 0;
  const auto reduced = [&] {
    for (int distance = 16; distance > 0; distance /= 2) {
      amax = higher_of(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = amax;
    __syncthreads();
    for (int warp = 0; warp < any_threads / 32; ++warp) amax = higher_of(amax, largest[warp]);
  };
  for (std::int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const T* x = any_at<const T>(p.x, line / p.shape.rows, line % p.shape.rows, 0);
    if (p.of_rows) amax = 0;
    for (std::int64_t c = threadIdx.x; c < p.shape.columns; c += any_threads) {
      const auto value = any_load(x[c]);
      const Word own = bits_of(value) & (~Word{0} >> 1);
      std::uint32_t found;
      if (p.finite) {
        constexpr int mantissa_bits = MachineFloat<Word>::mantissa_bits;
        const bool is_finite = own < (~Word{0} >> (mantissa_bits + 1)) << mantissa_bits;
        found = 0;
        if constexpr (sizeof(Word) == 4) {
          if (is_finite) found = own;
        } else if (is_finite) {
          found = float32::nearest_bits(float_of(own));
        }
      } else {
        found = any_amax(own, p.kind, p.rule);
      }
      amax = higher_of(amax, found);
    }
    if (!p.of_rows) continue;
    reduced();
    if (threadIdx.x == 0) p.found[line] = float_of(amax);
  }
  if (p.of_rows) return;
  reduced();
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<std::uint32_t*>(p.found), amax);
}

}  // namespace mxkern::kernels
