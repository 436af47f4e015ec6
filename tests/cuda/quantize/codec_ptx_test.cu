// tests/cuda/quantize/codec_ptx_test.cu: eight elements at a time against one at a time, on all
// inputs.
#include "mxkern/numerics/codec_ptx.cuh"
#include "mxkern/numerics/codec_stochastic.cuh"
#include "mxkern/numerics/rounding.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/format_list.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

// The first of the inputs where the two ways differ; all ones: they never do.
struct Difference {
  unsigned long long first = ~0ull;
};

// Every float32 pattern that is no NaN, which an octet never holds.
template <class Format>
__global__ void compare_encodings(Difference* difference) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x * 8;
  for (std::uint64_t i = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
       i < std::uint64_t{1} << 32; i += step) {
    float v[8];
    float largest = 0.0f;
    std::uint32_t codes[8];
    for (int k = 0; k < 8; ++k) {
      // An odd factor visits every pattern once and puts unlike values side by side.
      v[k] = float_of(static_cast<std::uint32_t>((i + k) * 0x9E3779B1u));
      if (v[k] != v[k]) v[k] = 1.0f;
      codes[k] = encode_lanes<Format>(v[k]);
      largest = fmaxf(largest, fabsf(v[k]));
      v[k] *= octet_scale<Format>;
    }
    if (needs_saturation<Format>(largest)) saturate_octet<Format>(v);
    if (encode_octet<Format>(v) != pack_octet<Format>(codes)) atomicMin(&difference->first, i);
  }
}

// The same with random words of an even spread, for stochastic rounding.
template <class Format>
__global__ void compare_stochastic_encodings(Difference* difference) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x * 8;
  for (std::uint64_t i = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 8;
       i < std::uint64_t{1} << 32; i += step) {
    float v[8];
    Philox4 words = {};
    std::uint32_t codes[8];
    for (int k = 0; k < 8; ++k) {
      v[k] = float_of(static_cast<std::uint32_t>((i + k) * 0x9E3779B1u));
      if (v[k] != v[k]) v[k] = 1.0f;
      auto word = static_cast<std::uint32_t>((i + k) * 0xC2B2AE3D27D4EB4Full >> 48);
      if ((i / 8 + k) % 16 == 0) word = k / 2 % 2 == 0 ? 0u : 0xFFFFu;
      words.lane[k / 2] |= word << 16 * (k % 2);
      codes[k] = encode_stochastic_lanes<Format>(v[k], word);
    }
    if (encode_stochastic_octet<Format>(v, words, true) != pack_octet<Format>(codes)) {
      atomicMin(&difference->first, i);
    }
  }
}

// All finite bfloat16 values times all powers of two, straight from their words.
__global__ void compare_bfloat16_encodings(Difference* difference) {
  const std::uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * 8 & 0xFFFFu;
  const int exponent = static_cast<int>(blockIdx.x * blockDim.x / 0x2000u) - 127;
  const float multiplier = ldexpf(1.0f, exponent);
  std::uint32_t word[4], codes[8];
  float largest = 0.0f;
  for (int k = 0; k < 8; ++k) {
    std::uint32_t bits = (first + k) * 0x9E37u & 0xFFFFu;
    if ((bits & 0x7F80u) == 0x7F80u) bits = 0x3F80u;
    const float value = to_float(bfloat16{static_cast<std::uint16_t>(bits)}) * multiplier;
    word[k / 2] = k % 2 == 0 ? bits : word[k / 2] | bits << 16;
    codes[k] = encode_lanes<E2M1>(value);
    largest = fmaxf(largest, fabsf(value));
  }
  const Octet got = needs_saturation<E2M1>(largest)
                        ? encode_bfloat16_octet<true>(word, multiplier)
                        : encode_bfloat16_octet<false>(word, multiplier);
  if (got != pack_octet<E2M1>(codes)) {
    atomicMin(&difference->first, static_cast<unsigned long long>(exponent + 127) << 16 | first);
  }
}

template <class Format>
__global__ void compare_decodings(Difference* difference) {
  const std::uint32_t code = blockIdx.x * blockDim.x + threadIdx.x;
  constexpr std::uint32_t mask = (1u << Format::bits) - 1;
  Octet octet = 0;
  for (int k = 0; k < 8; ++k) {
    octet |= static_cast<Octet>((code >> (k % 3) * 3 ^ k * 37u) & mask) << (Format::bits * k);
  }
  float v[8];
  decode_octet<Format>(octet, v);
  bool has_nan = false;
  for (int k = 0; k < 8; ++k) {
    const auto own = static_cast<std::uint32_t>(octet >> (Format::bits * k)) & mask;
    const float wanted = decode_lanes<Format>(own);
    const bool is_nan = wanted != wanted;
    has_nan |= is_nan;
    const bool same = is_nan ? v[k] != v[k] : bits_of(v[k]) == bits_of(wanted);
    if (!same) atomicMin(&difference->first, octet);
  }
  if (has_nan != has_nan_code<Format>(octet)) atomicMin(&difference->first, octet);
}

// The same to bfloat16, for codes of 4 and 6 bits.
template <class Format>
__global__ void compare_bfloat16_decodings(Difference* difference) {
  const std::uint32_t code = blockIdx.x * blockDim.x + threadIdx.x;
  constexpr std::uint32_t mask = (1u << Format::bits) - 1;
  Octet octet = 0;
  for (int k = 0; k < 8; ++k) {
    octet |= static_cast<Octet>((code >> (k % 3) * 3 ^ k * 37u) & mask) << (Format::bits * k);
  }
  std::uint32_t word[4];
  decode_bfloat16_octet<Format>(octet, word);
  for (int k = 0; k < 8; ++k) {
    const auto own = static_cast<std::uint32_t>(octet >> (Format::bits * k)) & mask;
    const std::uint32_t wanted = bits_of(decode_lanes<Format>(own)) >> 16;
    if ((word[k / 2] >> (16 * (k % 2)) & 0xFFFFu) != wanted) atomicMin(&difference->first, octet);
  }
}

template <class Format>
class CudaCodec : public CudaTest {
 protected:
  template <class Kernel>
  unsigned long long first_difference(Kernel kernel, int blocks) {
    DeviceBytes memory(sizeof(Difference));
    const Difference none;
    check_cuda(cudaMemcpy(memory.data(), &none, sizeof none, cudaMemcpyHostToDevice));
    kernel<<<blocks, 256>>>(reinterpret_cast<Difference*>(memory.data()));
    check_cuda(cudaGetLastError());
    Difference found;
    check_cuda(cudaMemcpy(&found, memory.data(), sizeof found, cudaMemcpyDeviceToHost));
    return found.first;
  }
};

TYPED_TEST_SUITE(CudaCodec, FormatTypes, NameOfType);

TYPED_TEST(CudaCodec, EncodesAllFloatsAlike) {
  const auto first = this->first_difference(compare_encodings<TypeParam>, 4096);
  EXPECT_EQ(first, ~0ull) << "the octet that starts at "
                          << show_bits(static_cast<std::uint32_t>(first * 0x9E3779B1u));
}

TYPED_TEST(CudaCodec, EncodesAllFloatsAlikeStochastically) {
  const auto first = this->first_difference(compare_stochastic_encodings<TypeParam>, 4096);
  EXPECT_EQ(first, ~0ull) << "the octet that starts at "
                          << show_bits(static_cast<std::uint32_t>(first * 0x9E3779B1u));
}

using CudaCodecE2M1 = CudaCodec<E2M1>;

TEST_F(CudaCodecE2M1, EncodesAllBfloat16Alike) {
  // 2^13 octets of all values for each of 255 powers of two, 2^-127 to 2^127.
  const auto first = first_difference(compare_bfloat16_encodings, 0x2000 / 256 * 255);
  EXPECT_EQ(first, ~0ull) << "exponent " << static_cast<long long>(first >> 16) - 127
                          << ", the octet that starts at "
                          << show_bits(static_cast<std::uint32_t>((first & 0xFFFF) * 0x9E37u));
}

TYPED_TEST(CudaCodec, DecodesAllCodesAlike) {
  const auto first = this->first_difference(compare_decodings<TypeParam>, 256);
  EXPECT_EQ(first, ~0ull) << "octet " << show_bits(static_cast<std::uint32_t>(first >> 32)) << " "
                          << show_bits(static_cast<std::uint32_t>(first));
}

TYPED_TEST(CudaCodec, DecodesAllCodesAlikeToBfloat16) {
  if constexpr (TypeParam::bits < 8) {
    const auto first = this->first_difference(compare_bfloat16_decodings<TypeParam>, 256);
    EXPECT_EQ(first, ~0ull) << "octet " << show_bits(static_cast<std::uint32_t>(first >> 32)) << " "
                            << show_bits(static_cast<std::uint32_t>(first));
  } else {
    GTEST_SKIP() << TypeParam::name << " has 8 bits";
  }
}

}  // namespace
}  // namespace mxkern
