// cpu/any/values.cc: codes of a scheme that is known at run time back to values, and elements
// rounded to a format, in parallel.
#include <algorithm>

#include "cpu/any/backend.h"
#include "cpu/any/tensor.h"
#include "cpu/kernel_table.h"
#include "cpu/runtime/parallel.h"
#include "cpu/runtime/scratch.h"
#include "cpu/quantize/tiles.h"
#include "mxkern/core/float_environment.h"

namespace mxkern::cpu {
namespace {

template <class Word>
struct ValueMemory {
  using Float = typename MachineFloat<Word>::Float;
  alignas(64) Float scales[any_chunk];
  alignas(64) std::uint8_t codes[any_chunk];
  alignas(64) std::uint16_t random[any_chunk];
};

// Calls work(batch, row, column, count) for chunks of every row, from several threads.
template <class Work>
void for_each_chunk(const Shape& shape, Work&& work) {
  if (shape.size() == 0) return;
  const std::int64_t across = ceil_div(shape.columns, any_chunk);
  const std::int64_t grain =
      std::max<std::int64_t>(grain_elements / std::min(any_chunk, shape.columns), 1);
  parallel_for(shape.batch * shape.rows * across, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / across, column = i % across * any_chunk;
      work(row / shape.rows, row % shape.rows, column, std::min(any_chunk, shape.columns - column));
    }
  });
}

template <class Word>
void dequantize(const AnyBlockScaled& q, const AnyBuffer& out, const AnyKernelsOf<Word>& kernels) {
  using Float = typename MachineFloat<Word>::Float;
  const AnyScheme& scheme = q.scheme;
  const auto decoder = AnyDecoder<Word>::of(scheme.element);
  const AnyScales scales{static_cast<std::byte*>(q.scales), scheme.scale.stored_bits() / 8};
  const int bits = scheme.element.stored_bits();
  const std::int64_t row_bytes = scheme.code_row_bytes(q.shape.columns);
  const std::int64_t block =
      scheme.block_columns == 0 ? std::max<std::int64_t>(q.shape.columns, 1) : scheme.block_columns;
  const ScaleIndex index = scheme.scale_index(q.shape, q.scale_layout);
  for_each_chunk(q.shape, [&](std::int64_t batch, std::int64_t row, std::int64_t column,
                              std::int64_t count) {
    auto& memory = scratch<ValueMemory<Word>>();
    const std::int64_t base = scheme.is_whole_tensor() ? 0 : batch * index.size();
    const std::int64_t scale_row = scheme.is_whole_tensor() ? 0 : row / scheme.block_rows;
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t b = (column + i) / block;
      const auto scale =
          static_cast<Float>(scheme.scale.decode(scales.load(base + index.offset(scale_row, b))));
      const std::int64_t end = std::min((b + 1) * block - column, count);
      for (; i < end; ++i) memory.scales[i] = scale;
    }
    const std::int64_t line = batch * q.shape.rows + row;
    const auto* codes = static_cast<const std::uint8_t*>(q.codes) + line * row_bytes;
    codes += column * bits / 8;
    if (bits < 8) {
      unpack_any(bits, codes, count, memory.codes);
      codes = memory.codes;
    }
    const bool has_tensor_scale = scheme.has_tensor_scale();
    const float tensor_scale =
        !has_tensor_scale ? 1.0f
                          : q.tensor_scale[scheme.tensor_scales == TensorScales::row ? line : 0];
    kernels.decode(codes, bits == 16, count, decoder,
                   {memory.scales, static_cast<Float>(tensor_scale), has_tensor_scale},
                   any_address(out, batch, row, column));
  });
}

}  // namespace

void dequantize_any(const AnyBlockScaled& q, const AnyBuffer& out, const KernelTable& kernels) {
  const FloatEnvironment environment;
  visit_any(out, *kernels.any,
            [&]<class Word>(const AnyKernelsOf<Word>& own) { dequantize<Word>(q, out, own); });
}

void round_any(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
               const AnyOptions& options, const KernelTable& kernels) {
  const FloatEnvironment environment;
  visit_any(x, *kernels.any, [&]<class Word>(const AnyKernelsOf<Word>& own) {
    const auto way = AnyWay<Word>::of(format, options.rounding);
    const auto decoder = AnyDecoder<Word>::of(format);
    const bool is_random = options.rounding.rounding == AnyRounding::stochastic;
    for_each_chunk(x.shape, [&](std::int64_t batch, std::int64_t row, std::int64_t column,
                                std::int64_t count) {
      auto& memory = scratch<ValueMemory<Word>>();
      if (is_random) {
        const auto index =
            static_cast<std::uint64_t>((batch * x.shape.rows + row) * x.shape.columns + column);
        best_kernels().random_words(options.seed, options.offset, index, count, memory.random);
      }
      own.round(
          {any_address(x, batch, row, column), count, nullptr, is_random ? memory.random : nullptr},
          way, decoder, {nullptr, 1, false}, any_address(out, batch, row, column));
    });
  });
}

}  // namespace mxkern::cpu
