// cuda/operands/prepare_operand.cu: launches what makes an operand of gemm ready.
#include "cuda/operands/prepare_operand.h"

#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/decode/multiply.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "prepare_operand";

void check_pointers(const PreparedOperand& out) {
  const BlockScaled& q = out.source;
  check_device_pointer(function, "q.codes", q.codes, q.device);
  check_device_pointer(function, "q.scales", q.scales, q.device);
  check_device_pointer(function, "q.tensor_scale", q.tensor_scale, q.device);
  check_device_pointer(function, "out.data", out.data, q.device);
}

}  // namespace

void prepare_operand(const PreparedOperand& out, Stream stream) {
  const DeviceScope scope(out.source.device, stream, function);
  check_pointers(out);
  if (out.source.shape.size() == 0) return;
  switch (out.form) {
    case PreparedForm::source:
    case PreparedForm::panels: return;
    case PreparedForm::folded: return fold(function, out.source, out.data, stream);
    case PreparedForm::expanded: {
      const GemmOperand operand = out.source;
      return expand(function, {&operand, out.data}, {}, stream);
    }
    case PreparedForm::few_tokens:
      return reorder_weights(function, out.source, static_cast<std::uint8_t*>(out.data), stream);
  }
}

void quantize_prepared(const Buffer& x, const PreparedOperand& out, ScaleRule rule, Stream stream) {
  const DeviceScope scope(x.device, stream, function);
  check_pointers(out);
  check_device_pointer(function, "x", x.data, x.device);
  if (x.shape.size() == 0) return;
  const BlockScaled* codes = out.has_source() ? &out.source : nullptr;
  quantize_folded(function, x, out.source.scheme, rule, out.data, codes, stream);
}

}  // namespace mxkern::cuda
