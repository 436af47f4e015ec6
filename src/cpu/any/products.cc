// cpu/any/products.cc: products of float32 matrices in parallel, summed in float32 or in a narrower
// format.
#include <algorithm>

#include "cpu/any/backend.h"
#include "cpu/any/tensor.h"
#include "cpu/runtime/parallel.h"
#include "cpu/runtime/scratch.h"
#include "mxkern/core/float_environment.h"

namespace mxkern::cpu {
namespace {

// Columns of a panel, elements of k that are packed at a time, and rows that go through them.
constexpr std::int64_t panel = 64, depth = 256, band = 64;

template <class Sum>
struct PanelMemory {
  alignas(64) float packed[depth * panel];
  static constexpr std::int64_t rows = sizeof(Sum) == 8 ? band / 4 : band;
  alignas(64) Sum sums[rows * panel];
  alignas(64) Sum parts[rows * panel];  // of a block that has scales
};

// panel[k][n] of `columns` rows of b, k elements from `start` on; columns that are missing are 0.
void pack_panel(const float* b, std::int64_t stride, std::int64_t start, std::int64_t k,
                std::int64_t columns, float* packed) {
  for (std::int64_t n = 0; n < panel; ++n) {
    for (std::int64_t i = 0; i < k; ++i) {
      packed[i * panel + n] = n < columns ? b[n * stride + start + i] : 0.0f;
    }
  }
}

// One matrix goes with all.
const float* row_of(const Buffer& x, std::int64_t batch, std::int64_t row) {
  const std::int64_t own = x.shape.batch == 1 ? 0 : batch;
  return static_cast<const float*>(x.data) + own * x.batch_stride + row * x.row_stride;
}

// A row of sums to the output.
template <class Sum>
void finish_row(const AnyProductOptions& options, const Sum* sums, const Buffer& out,
                std::int64_t batch, std::int64_t row, std::int64_t column, std::int64_t columns) {
  visit(out.dtype, [&]<class T>(TypeTag<T>) {
    auto* target = reinterpret_cast<T*>(any_address(out, batch, row, column));
    for (std::int64_t n = 0; n < columns; ++n) {
      float value = static_cast<float>(sums[n]) * options.alpha;
      if (options.bias != nullptr) {
        value += visit(options.bias->dtype, [&]<class Bias>(TypeTag<Bias>) {
          return to_float(static_cast<const Bias*>(options.bias->data)[column + n]);
        });
      }
      if (options.beta != 0.0f) value += options.beta * to_float(target[n]);
      target[n] = from_float<T>(with_one_nan(value));
    }
  });
}

// Calls work(batch, first row, rows, first column, columns) for parts of out.
template <class Work>
void for_each_panel(const Buffer& out, std::int64_t k, std::int64_t rows, Work&& work) {
  const std::int64_t across = ceil_div(out.shape.columns, panel);
  const std::int64_t down = ceil_div(out.shape.rows, rows);
  const std::int64_t grain =
      std::max<std::int64_t>(65536 / std::max<std::int64_t>(rows * panel * k, 1), 1);
  parallel_for(out.shape.batch * down * across, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / across % down * rows, column = i % across * panel;
      work(i / (across * down), row, std::min(rows, out.shape.rows - row), column,
           std::min(panel, out.shape.columns - column));
    }
  });
}

}  // namespace

// The scale of a row of an operand and of a block of k.
float scale_of(const float* scales, std::int64_t scale_rows, const Buffer& x, std::int64_t blocks,
               std::int64_t batch, std::int64_t row, std::int64_t block) {
  const std::int64_t down = ceil_div(x.shape.rows, scale_rows);
  const std::int64_t own = x.shape.batch == 1 ? 0 : batch;
  return scales[(own * down + row / scale_rows) * blocks + block];
}

void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                      const AnyProductOptions& options, const KernelTable& kernels) {
  const FloatEnvironment environment;
  if (out.shape.size() == 0) return;
  using Memory = PanelMemory<float>;
  const std::int64_t k = a.shape.columns;
  const bool scales = options.scale_block != 0;
  const std::int64_t block = scales ? options.scale_block : std::max<std::int64_t>(k, 1);
  const std::int64_t blocks = ceil_div(k, block);
  for_each_panel(
      out, k, Memory::rows,
      [&](std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column,
          std::int64_t columns) {
        Memory& memory = scratch<Memory>();
        std::fill_n(memory.sums, rows * panel, 0.0f);
        float* const target = scales ? memory.parts : memory.sums;
        for (std::int64_t i = 0; i < blocks; ++i) {
          if (scales) std::fill_n(memory.parts, rows * panel, 0.0f);
          const std::int64_t end = std::min((i + 1) * block, k);
          for (std::int64_t start = i * block; start < end; start += depth) {
            const std::int64_t length = std::min(depth, end - start);
            pack_panel(row_of(b, batch, column), b.row_stride, start, length, columns,
                       memory.packed);
            for (std::int64_t r = 0; r < rows; r += 4) {
              kernels.any->multiply(row_of(a, batch, row + r) + start, a.row_stride,
                                    static_cast<int>(std::min<std::int64_t>(4, rows - r)),
                                    memory.packed, length, panel, panel, target + r * panel, panel);
            }
          }
          if (!scales) continue;
          for (std::int64_t r = 0; r < rows; ++r) {
            const float left =
                scale_of(options.a_scales, options.a_scale_rows, a, blocks, batch, row + r, i);
            for (std::int64_t n = 0; n < columns; ++n) {
              const float right =
                  scale_of(options.b_scales, options.b_scale_rows, b, blocks, batch, column + n, i);
              memory.sums[r * panel + n] += memory.parts[r * panel + n] * (left * right);
            }
          }
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          finish_row(options, memory.sums + r * panel, out, batch, row + r, column, columns);
        }
      });
}

void accumulate_products(const Buffer& a, const Buffer& b, const Buffer& out,
                         const AnyFormat& format, const AnyRoundingOptions& rounding,
                         const AnyProductOptions& options, const KernelTable& kernels) {
  const FloatEnvironment environment;
  if (out.shape.size() == 0) return;
  using Memory = PanelMemory<double>;
  const std::int64_t k = a.shape.columns;
  const auto way = AnyWay<std::uint64_t>::of(format, rounding);
  const auto decoder = AnyDecoder<std::uint64_t>::of(format);
  for_each_panel(
      out, k, Memory::rows,
      [&](std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column,
          std::int64_t columns) {
        Memory& memory = scratch<Memory>();
        std::fill_n(memory.sums, rows * panel, 0.0);
        for (std::int64_t start = 0; start < k; start += depth) {
          const std::int64_t length = std::min(depth, k - start);
          pack_panel(row_of(b, batch, column), b.row_stride, start, length, columns, memory.packed);
          for (std::int64_t r = 0; r < rows; ++r) {
            kernels.any->accumulate(row_of(a, batch, row + r) + start, memory.packed, length, panel,
                                    panel, way, decoder, memory.sums + r * panel);
          }
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          finish_row(options, memory.sums + r * panel, out, batch, row + r, column, columns);
        }
      });
}

}  // namespace mxkern::cpu
