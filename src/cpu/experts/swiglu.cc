// cpu/experts/swiglu.cc: SwiGLU of a tensor in parallel.
#include "cpu/experts/swiglu.h"

#include <algorithm>

#include "cpu/quantize/tiles.h"
#include "mxkern/core/dtype.h"
#include "mxkern/numerics/swiglu.h"

namespace mxkern::cpu {
namespace {

// Loops over so many elements at a time, each of them one that compilers make vectors of.
constexpr int piece = 256;

// Step: from a gate to the next one.
template <int Step, class T>
void run_line(const T* gates, const T* others, std::int64_t columns, T* out,
              const SwigluOptions& options) {
  alignas(64) float gate[piece], up[piece];
  const float alpha = options.alpha, limit = options.limit, offset = options.offset;
  for (std::int64_t at = 0; at < columns; at += piece) {
    const int count = static_cast<int>(std::min<std::int64_t>(piece, columns - at));
    for (int i = 0; i < count; ++i) gate[i] = to_float(gates[(at + i) * Step]);
    for (int i = 0; i < count; ++i) up[i] = to_float(others[(at + i) * Step]);
    for (int i = 0; i < count; ++i) gate[i] = mxkern::swiglu(gate[i], up[i], alpha, limit, offset);
    for (int i = 0; i < count; ++i) out[at + i] = from_float<T>(gate[i]);
  }
}

}  // namespace

void swiglu(const Buffer& x, const Buffer& out, const SwigluOptions& options) {
  if (out.shape.size() == 0) return;
  for_each_tile(out.shape, line_tile(out.shape, 1, tile_elements), [&](const Tile& tile) {
    visit(x.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      for (std::int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
        const T* const line =
            static_cast<const T*>(x.data) + tile.batch * x.batch_stride + row * x.row_stride;
        T* const to = static_cast<T*>(out.data) + tile.batch * out.batch_stride +
                      row * out.row_stride + tile.column;
        if (options.layout == GateLayout::interleaved) {
          const T* const gates = line + 2 * tile.column;
          run_line<2>(gates, gates + 1, tile.columns, to, options);
        } else {
          const T* const gates = line + tile.column;
          run_line<1>(gates, gates + out.shape.columns, tile.columns, to, options);
        }
      }
    });
  });
}

}  // namespace mxkern::cpu
