// mxkern/kernels/ptx/wgmma_registers.cuh: products of a warpgroup whose left operand is in
// registers: 64 rows, 16 columns of bfloat16 or float16, or 32 of FP8.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"

namespace mxkern::ptx {

// Keeps registers that products under way read from being used again before this place.
template <int Count>
__device__ __forceinline__ void wgmma_pin(std::uint32_t (&words)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(words[i])::"memory");
}

// clang-format off
#define MXKERN_SUMS_4(f, i) f(sums[i]), f(sums[i + 1]), f(sums[i + 2]), f(sums[i + 3])
#define MXKERN_SUMS_16(f, i) MXKERN_SUMS_4(f, i), MXKERN_SUMS_4(f, i + 4), \
  MXKERN_SUMS_4(f, i + 8), MXKERN_SUMS_4(f, i + 12)
#define MXKERN_ALL_4(f) MXKERN_SUMS_4(f, 0)
#define MXKERN_ALL_8(f) MXKERN_ALL_4(f), MXKERN_SUMS_4(f, 4)
#define MXKERN_ALL_16(f) MXKERN_SUMS_16(f, 0)
#define MXKERN_ALL_32(f) MXKERN_ALL_16(f), MXKERN_SUMS_16(f, 16)
#define MXKERN_ALL_48(f) MXKERN_ALL_32(f), MXKERN_SUMS_16(f, 32)
#define MXKERN_ALL_64(f) MXKERN_ALL_48(f), MXKERN_SUMS_16(f, 48)
#define MXKERN_ALL_96(f) MXKERN_ALL_64(f), MXKERN_SUMS_16(f, 64), MXKERN_SUMS_16(f, 80)
#define MXKERN_ALL_128(f) MXKERN_ALL_96(f), MXKERN_SUMS_16(f, 96), MXKERN_SUMS_16(f, 112)
#define MXKERN_NAMES_4 "%0, %1, %2, %3"
#define MXKERN_NAMES_8 MXKERN_NAMES_4 ", %4, %5, %6, %7"
#define MXKERN_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MXKERN_NAMES_32 MXKERN_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MXKERN_NAMES_48 MXKERN_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define MXKERN_NAMES_64 MXKERN_NAMES_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MXKERN_NAMES_96 MXKERN_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MXKERN_NAMES_128 MXKERN_NAMES_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// sums += left . right^T: two sums for each of `columns` rows of the right operand, which is in
// shared memory, 32 bytes of K; both operands are of this type.
#define MXKERN_WGMMA_REGISTERS(Type, types, columns, count, a0, a1, a2, a3, b)                 \
  __device__ __forceinline__ void wgmma(Type, float(&sums)[count],                             \
                                        const std::uint32_t(&left)[4], std::uint64_t right) {  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." types " {"            \
                 MXKERN_NAMES_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b      \
                 ", 1, 1, 1, 0;\n"                                                             \
                 : MXKERN_ALL_##count("+f")                                                          \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));        \
  }
#define MXKERN_WGMMA_OF_BOTH(...)                           \
  MXKERN_WGMMA_REGISTERS(bfloat16, "bf16.bf16", __VA_ARGS__) \
  MXKERN_WGMMA_REGISTERS(float16, "f16.f16", __VA_ARGS__)
MXKERN_WGMMA_OF_BOTH(32, 16, 16, 17, 18, 19, 20)
MXKERN_WGMMA_OF_BOTH(64, 32, 32, 33, 34, 35, 36)
MXKERN_WGMMA_OF_BOTH(96, 48, 48, 49, 50, 51, 52)
MXKERN_WGMMA_OF_BOTH(128, 64, 64, 65, 66, 67, 68)
MXKERN_WGMMA_OF_BOTH(192, 96, 96, 97, 98, 99, 100)
MXKERN_WGMMA_OF_BOTH(256, 128, 128, 129, 130, 131, 132)
#undef MXKERN_WGMMA_OF_BOTH
#undef MXKERN_WGMMA_REGISTERS

// The same of E5M2 by E4M3: sums = left . right^T, or sums += it.
#define MXKERN_WGMMA_FP8(name, adds, constraint, columns, count, a0, a1, a2, a3, b)                        \
  __device__ __forceinline__ void name(float(&sums)[count], const std::uint32_t(&left)[4],     \
                                       std::uint64_t right) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e5m2.e4m3 {"            \
                 MXKERN_NAMES_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b      \
                 ", " #adds ", 1, 1;\n"                                                        \
                 : MXKERN_ALL_##count(constraint)                                                          \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));        \
  }
#define MXKERN_WGMMA_FP8_OF_BOTH(...)        \
  MXKERN_WGMMA_FP8(wgmma_set_fp8, 0, "=f", __VA_ARGS__) \
  MXKERN_WGMMA_FP8(wgmma_add_fp8, 1, "+f", __VA_ARGS__)
MXKERN_WGMMA_FP8_OF_BOTH(8, 4, 4, 5, 6, 7, 8)
MXKERN_WGMMA_FP8_OF_BOTH(16, 8, 8, 9, 10, 11, 12)
MXKERN_WGMMA_FP8_OF_BOTH(32, 16, 16, 17, 18, 19, 20)
MXKERN_WGMMA_FP8_OF_BOTH(64, 32, 32, 33, 34, 35, 36)
MXKERN_WGMMA_FP8_OF_BOTH(128, 64, 64, 65, 66, 67, 68)
#undef MXKERN_WGMMA_FP8_OF_BOTH
#undef MXKERN_WGMMA_FP8
#undef MXKERN_NAMES_128
#undef MXKERN_NAMES_96
#undef MXKERN_NAMES_64
#undef MXKERN_NAMES_48
#undef MXKERN_NAMES_32
#undef MXKERN_NAMES_16
#undef MXKERN_NAMES_8
#undef MXKERN_NAMES_4
#undef MXKERN_ALL_128
#undef MXKERN_ALL_96
#undef MXKERN_ALL_64
#undef MXKERN_ALL_48
#undef MXKERN_ALL_32
#undef MXKERN_ALL_16
#undef MXKERN_ALL_8
#undef MXKERN_ALL_4
#undef MXKERN_SUMS_16
#undef MXKERN_SUMS_4
// clang-format on

}  // namespace mxkern::ptx
