// ops/combine.cc: checks the arguments of combine and picks the device.
#include "mxkern/combine.h"

#include "check/arguments.h"
#include "check/experts.h"
#include "check/gemm.h"
#include "cpu/experts/combine.h"
#include "cpu/experts/row_numbers.h"
#include "plan/combine.h"
#include "cuda/experts/combine.h"

namespace mxkern {
namespace {

constexpr const char* function = "combine";

}  // namespace

void combine(const Buffer& given_y, const std::int32_t* rows, const float* weights,
             const Buffer& given_out, Workspace workspace, Stream stream) {
  check_combine(given_y, rows, weights, given_out);
  const Buffer y = with_strides(given_y), out = with_strides(given_out);
  const std::int64_t count = y.shape.rows, tokens = out.shape.rows;
  const std::size_t bytes = combine_workspace_bytes(count, tokens);
  const Occupied memory = check_workspace(function, workspace, bytes, out);
  const std::size_t numbers = static_cast<std::size_t>(count) * 4;
  check_apart(function, memory, {"y", y});
  check_apart(function, memory, {"rows", "", rows, numbers});
  if (weights != nullptr) check_apart(function, memory, {"weights", "", weights, numbers});
  if constexpr (has_cuda) {
    if (y.device.type == DeviceType::cuda) {
      return cuda::combine(function, y, rows, nullptr, weights, out, workspace.data, stream);
    }
  }
  auto* const own = static_cast<std::int32_t*>(workspace.data);
  cpu::copy_row_numbers(function, rows, count, tokens, "out", "a row of no token", own);
  cpu::combine(y, own, count, weights, out, own + count);
}

std::size_t combine_workspace_bytes(std::int64_t rows, std::int64_t tokens) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  check(rows >= 0 && tokens >= 0 && rows < most && tokens < most,
        "combine_workspace_bytes: there are ", rows, " rows and ", tokens,
        " tokens; expected 0 to 2^31 - 1");
  return static_cast<std::size_t>(combine_words(rows, tokens)) * sizeof(std::int32_t);
}

}  // namespace mxkern
