// cuda/gemm/blackwell/multiply.cu: what surrounds a block-scaled product: the factor, the bias and
// the scales as the kernels take them, and the choice of the kernel.
#include "cuda/gemm/blackwell/multiply.h"

#include "cuda/backend.h"
#include "cuda/gemm/blackwell/product.h"
#include "cuda/runtime/launch.h"
#include "cuda/gemm/blackwell/kernels.h"
#include "mxkern/core/dtype.h"

namespace mxkern::cuda {
namespace {

using kernels::BlockScaledKernel;
using kernels::BlockScaledProduct;

struct PrepareFinish {
  float alpha;
  const float* left_tensor_scale;
  const float* right_tensor_scale;
  float* factor;
  const void* bias;
  DType bias_dtype;
  float* float_bias;
  std::int64_t columns;
};

constexpr int prepare_threads = 256;

// The factor as one number, and the bias as float32.
__global__ void prepare_finish_kernel(PrepareFinish p) {
  const std::int64_t i = std::int64_t{blockIdx.x} * prepare_threads + threadIdx.x;
  if (i == 0) {
    const float left = p.left_tensor_scale == nullptr ? 1.0f : *p.left_tensor_scale;
    const float right = p.right_tensor_scale == nullptr ? 1.0f : *p.right_tensor_scale;
    *p.factor = p.alpha * left * right;
  }
  if (p.bias == nullptr || i >= p.columns) return;
  switch (p.bias_dtype) {
    case DType::float32: p.float_bias[i] = static_cast<const float*>(p.bias)[i]; break;
    case DType::float16: p.float_bias[i] = to_float(static_cast<const float16*>(p.bias)[i]); break;
    case DType::bfloat16:
      p.float_bias[i] = to_float(static_cast<const bfloat16*>(p.bias)[i]);
      break;
  }
}

Blackwell architecture_of(const char* function, Device device) {
  return blackwell_of(attribute_of(function, cudaDevAttrComputeCapabilityMajor, device.index),
                      attribute_of(function, cudaDevAttrComputeCapabilityMinor, device.index));
}

// On sm_100a one kernel serves all formats of a width, and the first of a width stands for them.
[[maybe_unused]] constexpr Scheme first_of_width(Scheme scheme) {
  const int bits = facts_of(scheme).bits;
  return bits == 8 ? Scheme::mxfp8_e4m3 : bits == 6 ? Scheme::mxfp6_e3m2 : scheme;
}

// {} where this build has no kernel.
BlockScaledKernel find_kernel([[maybe_unused]] Blackwell architecture, [[maybe_unused]] Scheme left,
                              [[maybe_unused]] Scheme right, [[maybe_unused]] DType out) {
#define MXKERN_RETURN_KERNEL(get, Left, Right)                                               \
  if (left == Left::id && right == Right::id) {                                              \
    return out == DType::float32 ? get<Left, Right, float>() : get<Left, Right, bfloat16>(); \
  }
#if defined(MXKERN_HAS_SM100)
#define MXKERN_RETURN_SM100(Left, Right) MXKERN_RETURN_KERNEL(sm100_kernel, Left, Right)
  if (architecture == Blackwell::sm100) {
    left = first_of_width(left);
    right = first_of_width(right);
    MXKERN_FOR_EACH_SM100_PAIR(MXKERN_RETURN_SM100)
  }
#undef MXKERN_RETURN_SM100
#endif
#if defined(MXKERN_HAS_SM120)
#define MXKERN_RETURN_SM120(Left, Right) MXKERN_RETURN_KERNEL(sm120_kernel, Left, Right)
  if (architecture == Blackwell::sm120) {
    MXKERN_FOR_EACH_SM120_KIND(MXKERN_RETURN_SM120)
    MXKERN_FOR_EACH_OTHER_SM120_PAIR(MXKERN_RETURN_SM120)
  }
#undef MXKERN_RETURN_SM120
#endif
#undef MXKERN_RETURN_KERNEL
  return {};
}

// The scales of q in the swizzled layout: its own, or converted into `to`.
const std::uint8_t* swizzled_scales(const BlockScaled& q, std::uint8_t* to, Stream stream) {
  if (q.scale_layout == ScaleLayout::swizzled) return q.scales;
  convert_scales(q.scales, ScaleLayout::row_major, to, ScaleLayout::swizzled, q.shape.batch,
                 q.shape.rows, q.scale_index().blocks, q.device, stream);
  return to;
}

}  // namespace

bool multiply_blackwell(const char* function, const BlockScaled& a, const BlockScaled& b,
                        const CoreFinish& finish, Workspace workspace, Stream stream) {
  const Buffer& out = finish.out;
  if (why_not_blackwell(a, b, out) != nullptr) return false;
  const DeviceScope scope(out.device, function);
  const BlockScaledKernel kernel =
      find_kernel(architecture_of(function, out.device), a.scheme, b.scheme, out.dtype);
  if (kernel.launch == nullptr) return false;

  const BlackwellWorkspace parts = blackwell_workspace(a, b);
  check(workspace.data != nullptr && workspace.bytes >= parts.bytes, function, ": workspace has ",
        workspace.bytes, " bytes; expected at least ", parts.bytes);
  auto* memory = static_cast<std::uint8_t*>(workspace.data);
  auto* factor = reinterpret_cast<float*>(memory + parts.factor);
  auto* bias = reinterpret_cast<float*>(memory + parts.bias);
  const bool scales_factor =
      finish.left_tensor_scale != nullptr || finish.right_tensor_scale != nullptr;
  if (scales_factor || finish.bias != nullptr) {
    const PrepareFinish prepare{finish.alpha,
                                finish.left_tensor_scale,
                                finish.right_tensor_scale,
                                factor,
                                finish.bias,
                                finish.bias_dtype,
                                bias,
                                b.shape.rows};
    launch(function, prepare_finish_kernel, grid_of(ceil_div(b.shape.rows, prepare_threads)),
           prepare_threads, 0, stream, prepare);
  }

  BlockScaledProduct product = blackwell_product(a, b, out);
  product.left_scales = swizzled_scales(a, memory + parts.left_scales, stream);
  product.right_scales = swizzled_scales(b, memory + parts.right_scales, stream);
  product.alpha = finish.alpha;
  product.alpha_pointer = scales_factor ? factor : nullptr;
  product.beta = finish.beta;
  product.bias = finish.bias == nullptr ? nullptr : bias;
  const std::int64_t launches = is_one_launch(a, b) ? 1 : a.shape.batch;
  const int processors = processor_count(function);
  for (std::int64_t i = 0; i < launches; ++i) {
    const char* failure = kernel.launch(product, processors, stream.handle);
    check<Unsupported>(failure == nullptr, function,
                       ": CUTLASS failed to launch a kernel: ", failure == nullptr ? "" : failure);
    product.left_codes += a.shape.rows * code_row_bytes(a.scheme, a.shape.columns);
    product.left_scales += swizzled_bytes(a) / a.shape.batch;
    product.out = static_cast<std::uint8_t*>(product.out) +
                  out.batch_stride * static_cast<std::int64_t>(size_of(out.dtype));
  }
  return true;
}

}  // namespace mxkern::cuda
