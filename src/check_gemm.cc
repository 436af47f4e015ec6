// check_gemm.cc: the checks of the arguments of gemm.
#include "check_gemm.h"

#include <cstdint>
#include <variant>

#include "check.h"

namespace mxkern {
namespace {

constexpr std::uintptr_t workspace_alignment = 64;

void check_left(const BlockScaled& a) { check_block_scaled("gemm", "a", a); }
void check_left(const Buffer& a) { check_buffer("gemm", "a", a); }

void check_operands(const Shape& a, const Shape& b, const Shape& out) {
  check(a.columns == b.columns, "gemm: a has K = ", a.columns, " and b has K = ", b.columns,
        "; expected the same K, which is the columns of both: b is [N, K]");
  check(b.batch == a.batch || b.batch == 1, "gemm: b has a batch of ", b.batch, " and a one of ",
        a.batch, "; expected the same, or 1");
  check_same_shape("gemm", "out", out, {a.batch, a.rows, b.rows});
}

}  // namespace

void check_gemm(const GemmOperand& a, const BlockScaled& b, const Buffer& out) {
  check_block_scaled("gemm", "b", b);
  check_buffer("gemm", "out", out);
  std::visit(
      [&](const auto& left) {
        check_left(left);
        check_operands(left.shape, b.shape, out.shape);
        check_same_device("gemm", "a", left.device, out.device);
      },
      a);
  check_same_device("gemm", "b", b.device, out.device);
  check(out.shape.batch <= 1 || out.shape.rows == 0 ||
            out.batch_stride >= (out.shape.rows - 1) * out.row_stride + out.shape.columns,
        "gemm: out has a batch stride of ", out.batch_stride,
        " elements; expected matrices that do not overlap");
  check<Unsupported>(out.device.type == DeviceType::cpu, "gemm: the arguments are on ", out.device,
                     ", and this version multiplies on the CPU only; dequantize both and multiply "
                     "them there, or move them to the CPU");
}

void check_gemm_bias(const Buffer* bias, const Buffer& out) {
  if (bias == nullptr) return;
  check_buffer("gemm", "bias", *bias);
  check_same_shape("gemm", "bias", bias->shape, {1, 1, out.shape.columns});
  check_same_device("gemm", "bias", bias->device, out.device);
}

void check_gemm_workspace(Workspace workspace, std::size_t bytes) {
  check(workspace.bytes >= bytes, "gemm: workspace has ", workspace.bytes,
        " bytes; expected at least ", bytes, "; ask gemm_workspace_bytes");
  check(workspace.data != nullptr &&
            reinterpret_cast<std::uintptr_t>(workspace.data) % workspace_alignment == 0,
        "gemm: workspace is null or not aligned; expected memory aligned to ", workspace_alignment,
        " bytes");
}

}  // namespace mxkern
