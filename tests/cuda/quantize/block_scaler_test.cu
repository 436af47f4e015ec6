// tests/cuda/quantize/block_scaler_test.cu: the scales that kernels work out, against the rules, on
// all inputs.
#include "mxkern/kernels/quantize/block_scaler.cuh"
#include "tests/support/cuda/memory.h"
#include "tests/support/format_list.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;
using kernels::BlockScaler;

__device__ bool same_scale(const BlockScale& got, const BlockScale& wanted, bool poisoned) {
  const float multiplier = poisoned ? kernels::poisoned_multiplier : wanted.multiplier;
  return got.byte == wanted.byte && bits_of(got.multiplier) == bits_of(multiplier);
}

// Every magnitude, NaN and Inf too.
template <class S>
__global__ void compare_mx_scales(E8M0Rule constants, ScaleRule rule, unsigned* first) {
  const BlockScaler<S> scaler{constants};
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < 1u << 31;
       i += step) {
    const auto amax = static_cast<std::uint32_t>(i);
    const BlockScale wanted = block_scale<S>(amax, rule, {});
    if (!same_scale(scaler(amax), wanted, !float32::is_finite(amax))) atomicMin(first, amax);
  }
}

__global__ void compare_nvfp4_scales(float tensor_amax, unsigned* first) {
  const TensorScale tensor = TensorScale::from_amax(tensor_amax);
  const BlockScaler<NvFp4> scaler{tensor, 1};
  scaler.fill();
  __syncthreads();
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < 1u << 31;
       i += step) {
    const auto amax = static_cast<std::uint32_t>(i);
    const BlockScale wanted = block_scale<NvFp4>(amax, ScaleRule::rceil, tensor);
    if (!same_scale(scaler(amax), wanted, !float32::is_finite(amax))) atomicMin(first, amax);
  }
}

class CudaBlockScaler : public CudaTest {
 protected:
  // The first amax where the two ways differ; all ones: they never do.
  template <class Launch>
  unsigned first_difference(Launch&& launch) {
    DeviceBytes memory(sizeof(unsigned));
    const unsigned none = ~0u;
    check_cuda(cudaMemcpy(memory.data(), &none, sizeof none, cudaMemcpyHostToDevice));
    launch(reinterpret_cast<unsigned*>(memory.data()));
    check_cuda(cudaGetLastError());
    unsigned found;
    check_cuda(cudaMemcpy(&found, memory.data(), sizeof found, cudaMemcpyDeviceToHost));
    return found;
  }

  template <class S>
  void expect_rules() {
    for (const ScaleRule rule : all_scale_rules) {
      const auto constants = E8M0Rule::of<typename S::Format>(rule);
      const unsigned first = first_difference(
          [&](unsigned* found) { compare_mx_scales<S><<<2048, 256>>>(constants, rule, found); });
      EXPECT_EQ(first, ~0u) << S::name << ", " << name_of(rule) << ", amax " << show_bits(first);
    }
  }
};

TEST_F(CudaBlockScaler, FollowsEveryRule) {
  expect_rules<MxFp8E4M3>();
  expect_rules<MxFp8E5M2>();
  expect_rules<MxFp6E3M2>();
  expect_rules<MxFp6E2M3>();
  expect_rules<MxFp4>();
  expect_rules<MxInt8>();
}

TEST_F(CudaBlockScaler, FollowsTheTwoLevelsOfNvFp4) {
  for (const float amax : {0.0f, 0x1p-149f, 1e-40f, 0.37f, 5.6f, 6.0f, 2688.0f, 1e5f, 3.4e38f}) {
    const unsigned first = first_difference(
        [&](unsigned* found) { compare_nvfp4_scales<<<2048, 256>>>(amax, found); });
    EXPECT_EQ(first, ~0u) << "tensor amax " << show(amax) << ", amax " << show_bits(first);
  }
}

}  // namespace
}  // namespace mxkern
