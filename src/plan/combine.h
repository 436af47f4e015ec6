// plan/combine.h: the working memory of the sums of the rows of each token.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern {

// So many rows of a token are listed on a CUDA device: more than most mixtures of experts send it
// to. A token with more rows is looked for among all of them.
inline constexpr int listed_rows_of_a_token = 16;

// Words of int32. A CUDA device counts the rows of each token, and those that are wrong, and lists
// them, where there are many. The CPU keeps a copy of the numbers, sorts the rows by token, and
// knows where those of each end.
constexpr std::int64_t combine_words(std::int64_t rows, std::int64_t tokens) {
  const std::int64_t on_cpu = 2 * rows + tokens + 1;
  const std::int64_t on_cuda = tokens + 1 + tokens * listed_rows_of_a_token;
  return on_cpu > on_cuda ? on_cpu : on_cuda;
}

}  // namespace mxkern
