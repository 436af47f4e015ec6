// cuda/runtime/check_pointers.h: the check that what a product reads and writes is memory of its
// device.
#pragma once

#include <variant>

#include "cuda/runtime/device_scope.h"
#include "check/gemm_operand.h"
#include "mxkern/gemm.h"

namespace mxkern::cuda {

// Of an operand and its parts, in messages.
struct OperandNames {
  const char *plain, *codes, *scales, *tensor_scale, *data;
};
inline constexpr OperandNames left_names = {"a", "a.codes", "a.scales", "a.tensor_scale", "a.data"};
inline constexpr OperandNames right_names = {"b", "b.codes", "b.scales", "b.tensor_scale",
                                             "b.data"};

inline void check_pointers(const char* function, const OperandNames& names,
                           const GemmOperand& operand) {
  const BlockScaled* q = quantized_of(operand);
  if (q == nullptr) {
    const Buffer& plain = std::get<Buffer>(operand);
    return check_device_pointer(function, names.plain, plain.data, plain.device);
  }
  check_device_pointer(function, names.codes, q->codes, q->device);
  check_device_pointer(function, names.scales, q->scales, q->device);
  check_device_pointer(function, names.tensor_scale, q->tensor_scale, q->device);
  if (const auto* prepared = prepared_of(operand)) {
    check_device_pointer(function, names.data, prepared->data, q->device);
  }
}

// What is written, and what is added to it.
inline void check_pointers(const char* function, const Buffer& out, const Buffer* bias,
                           Workspace workspace) {
  check_device_pointer(function, "out", out.data, out.device);
  if (bias != nullptr) check_device_pointer(function, "bias", bias->data, out.device);
  // Of none, the address may be the end of other memory.
  if (workspace.bytes > 0) check_device_pointer(function, "workspace", workspace.data, out.device);
}

}  // namespace mxkern::cuda
