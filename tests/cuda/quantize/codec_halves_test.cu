// tests/cuda/quantize/codec_halves_test.cu: NVFP4 codes in half precision against float32 products.
#include "mxkern/kernels/quantize/patch/halves.cuh"
#include "tests/support/cuda/memory.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;
using kernels::BlockScaler;

// The first case where the two ways differ, and how many multipliers have no factors.
struct Result {
  unsigned long long first = ~0ull;
  unsigned long long without = 0;
};

// Two adjacent bfloat16 patterns from `bits` on, an even number, under one multiplier. Beyond what
// blocks that are not rare hold there is nothing to compare.
__device__ bool same_codes(std::uint32_t bits, float multiplier, HalfFactors factors,
                           HalfRange range) {
  const HalfLines lines(HalfFactors::first_of(factors, factors),
                        HalfFactors::second_of(factors, factors));
  const std::uint32_t word = bits | (bits + 1) << 16;
  const std::uint32_t got = lines.encode(to_halves(word, range.factor()));
  bool same = true;
  for (int k = 0; k < 2; ++k) {
    const float product = __fmul_rn(float_of((bits + k) << 16), multiplier);
    if (!(fabsf(product) < 7.0f)) return true;
    const std::uint32_t wanted = encode_lanes<E2M1>(product) & 7u;
    same = same && (got >> (16 * k) & 0xFFu) == wanted;
  }
  return same;
}

// A warp for each block scale of one binade, tensors of every significand in turn; elements of
// eight binades around the ties.
__global__ void compare_significands(bool from_multiplier, Result* result) {
  const int mantissa = static_cast<int>(threadIdx.x / 32);
  for (std::uint32_t i = blockIdx.x; i < 1u << float32::mantissa_bits; i += gridDim.x) {
    const float value = float_of(bits_of(1.0f) | i);
    const TensorScale tensor = from_multiplier ? TensorScale::from_decode_multiplier(value)
                                               : TensorScale::from_amax(value);
    const HalfRange range = HalfRange::of(tensor);
    const auto byte = static_cast<std::uint8_t>(E4M3::bias * 8 + mantissa);
    const float multiplier = nvfp4_multiplier(byte, tensor);
    const HalfFactors found = find_half_factors<32>(
        float_of((bits_of(multiplier) & float32::mantissa_mask) | bits_of(1.0f)));
    if (found.bits == 0) {
      if (threadIdx.x % 32 == 0) atomicAdd(&result->without, 1ull);
      continue;
    }
    const HalfFactors factors = move_half_factors(found, multiplier, range);
    const std::uint32_t first = (bits_of(1.0f / multiplier) >> float32::mantissa_bits) - 4;
    for (std::uint32_t k = threadIdx.x % 32 * 2; k < 8 * 128; k += 64) {
      if (!same_codes(first * 128 + k, multiplier, factors, range)) {
        atomicMin(&result->first, i * 8ull + mantissa);
      }
    }
  }
}

// All elements under all block scales of one tensor.
__global__ void compare_tensor(float amax, Result* result) {
  const TensorScale tensor = TensorScale::from_amax(amax);
  const BlockScaler<NvFp4> scaler{tensor, 0};
  scaler.fill();
  __syncthreads();
  kernels::fill_half_table(scaler);
  __syncthreads();
  const kernels::HalfTable& table = kernels::half_table(0);
  if (!table.usable) {
    if (threadIdx.x == 0) atomicAdd(&result->without, 1ull);
    return;
  }
  const std::uint32_t bits = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
  for (std::uint32_t byte = kernels::first_half_byte; byte < UE4M3::nan_byte; ++byte) {
    const float multiplier = nvfp4_multiplier(static_cast<std::uint8_t>(byte), tensor);
    if (!same_codes(bits, multiplier, table.of_byte[byte], HalfRange::of(tensor))) {
      atomicMin(&result->first, static_cast<unsigned long long>(byte) << 16 | bits);
    }
  }
}

class CudaCodecHalves : public CudaTest {
 protected:
  template <class Launch>
  Result result_of(Launch&& launch) {
    DeviceBytes memory(sizeof(Result));
    Result result;
    check_cuda(cudaMemcpy(memory.data(), &result, sizeof result, cudaMemcpyHostToDevice));
    launch(reinterpret_cast<Result*>(memory.data()));
    check_cuda(cudaGetLastError());
    check_cuda(cudaMemcpy(&result, memory.data(), sizeof result, cudaMemcpyDeviceToHost));
    return result;
  }
};

TEST_F(CudaCodecHalves, EverySignificandHasFactors) {
  for (const bool from_multiplier : {false, true}) {
    const Result result =
        result_of([&](Result* to) { compare_significands<<<2112, 256>>>(from_multiplier, to); });
    EXPECT_EQ(result.first, ~0ull) << "from a decode multiplier " << from_multiplier;
    EXPECT_EQ(result.without, 0u) << "from a decode multiplier " << from_multiplier;
  }
}

TEST_F(CudaCodecHalves, EveryElementAndBlockScale) {
  for (int exponent = -98; exponent <= 30; exponent += 4) {
    for (const float significand : {1.0f, 1.3125f, 0x1.b6db6ep0f}) {
      const float amax = std::ldexp(significand, exponent);
      const Result result = result_of([&](Result* to) { compare_tensor<<<64, 256>>>(amax, to); });
      EXPECT_EQ(result.first, ~0ull) << "tensor amax " << show(amax);
      EXPECT_EQ(result.without, 0u) << "tensor amax " << show(amax);
    }
  }
}

TEST_F(CudaCodecHalves, TensorsOutOfRangeAreLeftAlone) {
  for (const float amax : {0x1p-149f, 1e-35f, 1e12f, 3.4e38f}) {
    const Result result = result_of([&](Result* to) { compare_tensor<<<1, 256>>>(amax, to); });
    EXPECT_EQ(result.without, 1u) << "tensor amax " << show(amax);
  }
}

}  // namespace
}  // namespace mxkern
