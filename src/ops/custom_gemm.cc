// ops/custom_gemm.cc: the matrix product whose right operand is by a scheme of the user's own,
// decoded to rows of bfloat16 first.
#include "check/any_scheme.h"
#include "check/gemm.h"
#include "check/gemm_operand.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/task.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/custom.h"
#include "mxkern/plan.h"
#include "mxkern/prepare_operand.h"
#include "plan/core_rows.h"
#include "plan/gemm_cpu.h"
#include "cuda/any/backend.h"

namespace mxkern {
namespace {

// The rows lie as those of an expanded operand by this scheme, whose rows have an exponent each:
// zero, as the rows hold their scales.
constexpr Scheme stand_in = Scheme::mxfp8_e4m3;

PreparedOperand expanded(const AnyBlockScaled& b, void* data) {
  return {PreparedForm::expanded,
          {.scheme = stand_in, .shape = b.shape, .device = b.device},
          data,
          prepared_bytes(PreparedForm::expanded, stand_in, b.shape)};
}

std::size_t decoded_bytes(const AnyBlockScaled& b) {
  return round_up(prepared_bytes(PreparedForm::expanded, stand_in, b.shape), std::size_t{256});
}

Buffer rows_of(const PreparedOperand& right) {
  const cuda::RowScaledLayout layout = cuda::expanded_layout(PlannedOperand(right.source));
  Buffer rows = Buffer::dense(right.data, DType::bfloat16, right.source.shape, right.source.device);
  rows.row_stride = layout.row_bytes / 2;
  rows.batch_stride = layout.batch_bytes / 2;
  return rows;
}

void check_arguments(const GemmOperand& a, const AnyBlockScaled& b, const Buffer& out,
                     const GemmOptions& options) {
  check_any_scheme("gemm", b.scheme);
  check(b.scheme.is_exact_in_bfloat16(),
        "gemm: b is by a scheme whose values bfloat16 does not hold; expected elements of at most "
        "8 significant bits under scales that are powers of two; decode it and call "
        "multiply_float32");
  check_gemm_problem({a, expanded(b, nullptr), out, options});
  check_gemm_bias(options, out.shape);
  check_gemm_devices(a, expanded(b, nullptr), out, options);
}

// All that is written, which holds b's decoded rows too, is apart from all that is read.
void check_written(const GemmOperand& a, const AnyBlockScaled& b, const Buffer& out,
                   const GemmOptions& options, Workspace workspace, std::size_t bytes) {
  check_gemm_workspace(workspace, bytes, a, expanded(b, nullptr), out, options);
  const std::int64_t codes =
      b.shape.batch * b.shape.rows * b.scheme.code_row_bytes(b.shape.columns);
  const std::int64_t scales = b.scheme.scale_bytes(b.shape, b.scale_layout);
  const Occupied read[] = {{"b", ".codes", b.codes, static_cast<std::size_t>(codes)},
                           {"b", ".scales", b.scales, static_cast<std::size_t>(scales)}};
  for (const Occupied& part : read) {
    check_apart("gemm", {"out", out}, part);
    check_apart("gemm", {"workspace", "", workspace.data, bytes}, part);
  }
}

CpuGemmPlan cpu_plan(const GemmOperand& a, const Buffer& rows, const Buffer& out,
                     const GemmOptions& options) {
  check_precision_of_cpu("gemm", options.precision);
  const PlannedOperand left = with_strides(a);
  check_sources_for_cpu("gemm", left, PlannedOperand(stand_in, rows.shape));
  return plan_gemm_cpu(cpu_problem(left, rows, with_strides(out)), cpu::gemm_capabilities());
}

}  // namespace

std::size_t custom_gemm_workspace_bytes(const GemmOperand& a, const AnyBlockScaled& b,
                                        const Buffer& out, const GemmOptions& options) {
  check_arguments(a, b, out, options);
  if (out.shape.size() == 0) return 0;
  const PreparedOperand right = expanded(b, nullptr);
  const std::size_t rest = out.device.type == DeviceType::cpu
                               ? cpu_plan(a, rows_of(right), out, options).workspace_bytes
                               : plan_gemm(a, right, out, options).workspace_bytes();
  return decoded_bytes(b) + rest;
}

void gemm(const GemmOperand& given_a, const AnyBlockScaled& b, const Buffer& given_out,
          const GemmOptions& options, Workspace workspace, Stream stream) {
  const std::size_t wanted = custom_gemm_workspace_bytes(given_a, b, given_out, options);
  if (given_out.shape.size() == 0) return;
  const std::size_t decoded = decoded_bytes(b);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  check_written(a, b, out, options, workspace, wanted);
  const PreparedOperand right = expanded(b, workspace.data);
  check_gemm_memory(a, right, out, options);
  const Buffer rows = rows_of(right);
  const Workspace rest{static_cast<char*>(workspace.data) + decoded, workspace.bytes - decoded};
  if constexpr (has_cuda) {
    if (out.device.type == DeviceType::cuda) {
      cuda::clear(right.data, right.bytes, out.device, stream);
      dequantize(b, AnyBuffer(rows), stream);
      return gemm(a, GemmRightOperand(right), out, options, rest, stream);
    }
  }
  dequantize(b, AnyBuffer(rows), stream);
  const FloatEnvironment environment;
  const CpuGemmPlan plan = cpu_plan(a, rows, out, options);
  cpu::gemm(make_task(a, rows, out, options), plan, rest.data);
}

}  // namespace mxkern
