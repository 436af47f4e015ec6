// cuda/operands/prepare_both.cu: rows quantized and folded in one pass, columns in two.
#include "cuda/operands/prepare_both.h"

#include "cuda/backend.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/prepare_operand.h"
#include "cuda/runtime/device_scope.h"

namespace mxkern::cuda {
namespace {

constexpr const char* function = "prepare_both";

// Copies the spreads of a folded operand; those of an empty one are zeros.
void report_spreads(const PreparedOperand& folded, std::uint8_t* to, Stream stream) {
  const Shape& shape = folded.source.shape;
  const auto rows = static_cast<std::size_t>(shape.batch * shape.rows);
  if (to == nullptr || rows == 0) return;
  check_device_pointer(function, "spreads", to, folded.source.device);
  const cudaStream_t queue = handle_of(stream);
  if (shape.columns == 0) {
    return check_cuda(cudaMemsetAsync(to, 0, rows, queue), function, "clear spreads");
  }
  const auto* data = static_cast<const std::uint8_t*>(folded.data);
  check_cuda(cudaMemcpyAsync(to, data + folded_layout(shape).spreads, rows,
                             cudaMemcpyDeviceToDevice, queue),
             function, "copy spreads");
}

}  // namespace

void prepare_both(const Buffer& x, const PreparedOperand& rows, const PreparedOperand& columns,
                  const BlockScaled& codes, const BothSpreads& spreads,
                  const QuantizeOptions& options, Stream stream) {
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "workspace", codes.codes, x.device);
  quantize_prepared(x, rows, options.scale_rule, stream);
  if (x.shape.size() > 0) {
    quantize(function, x, nullptr, options, &codes, options, stream);
    PreparedOperand both = columns;
    both.source = codes;
    prepare_operand(both, stream);
  }
  report_spreads(rows, spreads.rows, stream);
  report_spreads(columns, spreads.columns, stream);
}

}  // namespace mxkern::cuda
