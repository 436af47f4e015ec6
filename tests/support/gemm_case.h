// tests/support/gemm_case.h: products on a CUDA device that are planned and never computed.
#pragma once

#include <cstdint>

#include "mxkern/prepare_operand.h"
#include "plan/gemm_cuda.h"

namespace mxkern::test {

inline constexpr Device device{DeviceType::cuda, 0};

// Addresses are looked at for their alignment only.
inline void* somewhere(std::uintptr_t offset = 0) {
  return reinterpret_cast<void*>(0x10000 + offset);
}

inline BlockScaled quantized(Scheme scheme, Shape shape) {
  BlockScaled q;
  q.scheme = scheme;
  q.shape = shape;
  q.codes = q.scales = static_cast<std::uint8_t*>(somewhere());
  q.tensor_scale = facts_of(scheme).has_tensor_scale ? static_cast<float*>(somewhere()) : nullptr;
  q.device = device;
  return q;
}

inline Buffer plain(DType dtype, Shape shape, std::uintptr_t offset = 0) {
  return Buffer::dense(somewhere(offset), dtype, shape, device);
}

inline PreparedOperand prepared(PreparedForm form, Scheme scheme, Shape shape,
                                bool keep_source = true) {
  PreparedOperand operand{form, quantized(scheme, shape), somewhere(),
                          prepared_bytes(form, scheme, shape)};
  if (!keep_source) operand.source.codes = operand.source.scales = nullptr;
  return operand;
}

struct GemmCase {
  Scheme left = Scheme::mxfp8_e4m3;
  Scheme right = Scheme::mxfp8_e4m3;
  DType out = DType::bfloat16;
  GemmPrecision precision = GemmPrecision::automatic;
  Shape shape{1, 512, 1024};  // of a
  std::int64_t n = 2048;

  Shape right_shape() const { return {shape.batch, n, shape.columns}; }
  Buffer result() const { return plain(out, {shape.batch, shape.rows, n}); }
  GemmProblem problem() const {
    return {quantized(left, shape), quantized(right, right_shape()), result(), precision};
  }
};

inline const CudaGemmCapabilities hopper = capabilities_of("sm_90");

}  // namespace mxkern::test
