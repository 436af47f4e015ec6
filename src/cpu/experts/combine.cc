// cpu/experts/combine.cc: the sums of the rows of each token on the CPU.
#include "cpu/experts/combine.h"

#include <algorithm>

#include "cpu/quantize/tiles.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cpu {
namespace {

// The rows of each token in their order: those from ends[t - 1], or 0, to ends[t] in `sorted`.
struct RowsOfTokens {
  std::int32_t* ends;  // [tokens + 1]
  std::int32_t* sorted;

  RowsOfTokens(const std::int32_t* rows, std::int64_t count, std::int64_t tokens,
               std::int32_t* memory)
      : ends(memory), sorted(memory + tokens + 1) {
    std::fill_n(ends, tokens + 1, 0);
    for (std::int64_t i = 0; i < count; ++i) ++ends[rows[i] + 1];
    // Rows of no token come first, and are left out.
    ends[0] = 0;
    for (std::int64_t t = 0; t < tokens; ++t) ends[t + 1] += ends[t];
    // ends[t] is where the rows of t begin, and after them where they end.
    for (std::int64_t i = 0; i < count; ++i) {
      if (rows[i] >= 0) sorted[ends[rows[i]]++] = static_cast<std::int32_t>(i);
    }
  }

  std::int32_t begin_of(std::int64_t token) const { return token == 0 ? 0 : ends[token - 1]; }
};

constexpr int piece = 256;  // columns at a time

template <class Y, class Out>
void sum_rows(const Buffer& y, const RowsOfTokens& order, std::int64_t token, const float* weights,
              const Buffer& out) {
  const std::int64_t columns = out.shape.columns;
  Out* const to = static_cast<Out*>(out.data) + token * out.row_stride;
  for (std::int64_t at = 0; at < columns; at += piece) {
    alignas(64) float sums[piece] = {};
    const int count = static_cast<int>(std::min<std::int64_t>(piece, columns - at));
    for (std::int32_t i = order.begin_of(token); i < order.ends[token]; ++i) {
      const std::int64_t row = order.sorted[i];
      const Y* const line = static_cast<const Y*>(y.data) + row * y.row_stride + at;
      const float weight = weights == nullptr ? 1.0f : weights[row];
      for (int j = 0; j < count; ++j) sums[j] += weight * to_float(line[j]);
    }
    for (int j = 0; j < count; ++j) to[at + j] = from_float<Out>(with_one_nan(sums[j]));
  }
}

}  // namespace

void combine(const Buffer& y, const std::int32_t* rows, std::int64_t count, const float* weights,
             const Buffer& out, std::int32_t* memory) {
  if (out.shape.size() == 0) return;
  const std::int64_t tokens = out.shape.rows;
  const RowsOfTokens order(rows, count, tokens, memory);
  const std::int64_t elements = (count / tokens + 1) * out.shape.columns;
  parallel_for(tokens, grain_elements / elements + 1, [&](std::int64_t begin, std::int64_t end) {
    visit(y.dtype, [&](auto from) {
      visit(out.dtype, [&](auto to) {
        for (std::int64_t token = begin; token < end; ++token) {
          sum_rows<typename decltype(from)::type, typename decltype(to)::type>(y, order, token,
                                                                               weights, out);
        }
      });
    });
  });
}

}  // namespace mxkern::cpu
