// mxkern/kernels/ptx/wgmma.cuh: products of a warpgroup: 64 rows, both operands in shared memory.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/format.h"

namespace mxkern::ptx {

// Rows of 128 bytes along K with the 128-byte swizzle, eight of them 1024 bytes. The lower half of
// a descriptor says where they start; adding bytes / 16 moves it.
__device__ __forceinline__ std::uint32_t swizzled_start(std::uint32_t shared_address) {
  return (shared_address & 0x3FFFF) >> 4 | 1u << 16;
}

__device__ __forceinline__ std::uint64_t swizzled_descriptor(std::uint32_t start) {
  constexpr std::uint32_t swizzle_128_bytes = 1, eight_rows = 1024 / 16;
  return std::uint64_t{swizzle_128_bytes << 30 | eight_rows} << 32 | start;
}

// Before the first product: what was written to the sums' registers is there.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most Pending committed groups are under way.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving uses of the sums across products that are under way.
template <int Count>
__device__ __forceinline__ void wgmma_pin(float (&sums)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// clang-format off
#define MXKERN_SUMS_8(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), \
  "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define MXKERN_SUMS_32 MXKERN_SUMS_8(0), MXKERN_SUMS_8(8), MXKERN_SUMS_8(16), MXKERN_SUMS_8(24)
#define MXKERN_SUMS_64 MXKERN_SUMS_32, MXKERN_SUMS_8(32), MXKERN_SUMS_8(40), MXKERN_SUMS_8(48), \
  MXKERN_SUMS_8(56)
#define MXKERN_SUMS_96 MXKERN_SUMS_64, MXKERN_SUMS_8(64), MXKERN_SUMS_8(72), MXKERN_SUMS_8(80), \
  MXKERN_SUMS_8(88)
#define MXKERN_SUMS_112 MXKERN_SUMS_96, MXKERN_SUMS_8(96), MXKERN_SUMS_8(104)
#define MXKERN_SUMS_128 MXKERN_SUMS_112, MXKERN_SUMS_8(112), MXKERN_SUMS_8(120)
#define MXKERN_NEW_8(i) "=f"(sums[i]), "=f"(sums[i + 1]), "=f"(sums[i + 2]), "=f"(sums[i + 3]), \
  "=f"(sums[i + 4]), "=f"(sums[i + 5]), "=f"(sums[i + 6]), "=f"(sums[i + 7])
#define MXKERN_NEW_32 MXKERN_NEW_8(0), MXKERN_NEW_8(8), MXKERN_NEW_8(16), MXKERN_NEW_8(24)
#define MXKERN_NEW_64 MXKERN_NEW_32, MXKERN_NEW_8(32), MXKERN_NEW_8(40), MXKERN_NEW_8(48), \
  MXKERN_NEW_8(56)
#define MXKERN_NEW_96 MXKERN_NEW_64, MXKERN_NEW_8(64), MXKERN_NEW_8(72), MXKERN_NEW_8(80), \
  MXKERN_NEW_8(88)
#define MXKERN_NEW_128 MXKERN_NEW_96, MXKERN_NEW_8(96), MXKERN_NEW_8(104), MXKERN_NEW_8(112), \
  MXKERN_NEW_8(120)
#define MXKERN_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MXKERN_NAMES_64 MXKERN_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MXKERN_NAMES_96 MXKERN_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MXKERN_NAMES_112 MXKERN_NAMES_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define MXKERN_NAMES_128 MXKERN_NAMES_112 ", " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// sums (+)= left . right^T over 32 bytes of K, for operands of these types.
#define MXKERN_WGMMA(Left, Right, count, shape, a, b, accumulate, options)                        \
  __device__ __forceinline__ void wgmma(Left, Right, float(&sums)[count], std::uint64_t left,     \
                                        std::uint64_t right, int accumulates) {                   \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" accumulate ", 0;\n"       \
                 "wgmma.mma_async.sync.aligned." shape " {" MXKERN_NAMES_##count "}, %" a ", %" b \
                 ", accumulate, 1, 1" options ";\n}\n"                                            \
                 : MXKERN_SUMS_##count                                                            \
                 : "l"(left), "l"(right), "r"(accumulates));                                      \
  }
// The same for sums that start with these products: whatever was in their registers is not read.
#define MXKERN_WGMMA_FIRST(Left, Right, count, shape, a, b, accumulate)                           \
  __device__ __forceinline__ void wgmma_first(Left, Right, float(&sums)[count],                   \
                                              std::uint64_t left, std::uint64_t right) {          \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" accumulate ", 0;\n"       \
                 "wgmma.mma_async.sync.aligned." shape " {" MXKERN_NAMES_##count "}, %" a ", %" b \
                 ", accumulate, 1, 1;\n}\n"                                                       \
                 : MXKERN_NEW_##count                                                             \
                 : "l"(left), "l"(right), "r"(0));                                                \
  }
#define MXKERN_WGMMA_FP8(Left, Right, types)                                                \
  MXKERN_WGMMA(Left, Right, 32, "m64n64k32.f32." types, "32", "33", "34", "")               \
  MXKERN_WGMMA_FIRST(Left, Right, 32, "m64n64k32.f32." types, "32", "33", "34")             \
  MXKERN_WGMMA(Left, Right, 64, "m64n128k32.f32." types, "64", "65", "66", "")              \
  MXKERN_WGMMA_FIRST(Left, Right, 64, "m64n128k32.f32." types, "64", "65", "66")            \
  MXKERN_WGMMA(Left, Right, 96, "m64n192k32.f32." types, "96", "97", "98", "")              \
  MXKERN_WGMMA_FIRST(Left, Right, 96, "m64n192k32.f32." types, "96", "97", "98")
MXKERN_WGMMA_FP8(E4M3, E4M3, "e4m3.e4m3")
MXKERN_WGMMA_FP8(E4M3, E5M2, "e4m3.e5m2")
MXKERN_WGMMA_FP8(E5M2, E4M3, "e5m2.e4m3")
MXKERN_WGMMA_FP8(E5M2, E5M2, "e5m2.e5m2")
MXKERN_WGMMA(bfloat16, bfloat16, 32, "m64n64k16.f32.bf16.bf16", "32", "33", "34", ", 0, 0")
MXKERN_WGMMA(bfloat16, bfloat16, 64, "m64n128k16.f32.bf16.bf16", "64", "65", "66", ", 0, 0")
MXKERN_WGMMA(bfloat16, bfloat16, 96, "m64n192k16.f32.bf16.bf16", "96", "97", "98", ", 0, 0")
MXKERN_WGMMA(bfloat16, bfloat16, 112, "m64n224k16.f32.bf16.bf16", "112", "113", "114", ", 0, 0")
MXKERN_WGMMA(bfloat16, bfloat16, 128, "m64n256k16.f32.bf16.bf16", "128", "129", "130", ", 0, 0")

// The same with the left operand in registers.
#define MXKERN_WGMMA_DECODED(name, sums_128, accumulates)                                          \
  __device__ __forceinline__ void name(const std::uint32_t* left, float (&sums)[128],              \
                                       std::uint64_t right) {                                      \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %133, 0;\n"                   \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MXKERN_NAMES_128 "}, "  \
                 "{%128, %129, %130, %131}, %132, accumulate, 1, 1, 0;\n}\n"                       \
                 : sums_128                                                                        \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),             \
                   "r"(accumulates));                                                              \
  }
MXKERN_WGMMA_DECODED(wgmma, MXKERN_SUMS_128, 1)
MXKERN_WGMMA_DECODED(wgmma_first, MXKERN_NEW_128, 0)
#undef MXKERN_WGMMA_DECODED
#undef MXKERN_WGMMA_FP8
#undef MXKERN_WGMMA_FIRST
#undef MXKERN_WGMMA
#undef MXKERN_NAMES_128
#undef MXKERN_NAMES_112
#undef MXKERN_NAMES_96
#undef MXKERN_NAMES_64
#undef MXKERN_NAMES_32
#undef MXKERN_SUMS_128
#undef MXKERN_SUMS_112
#undef MXKERN_SUMS_96
#undef MXKERN_SUMS_64
#undef MXKERN_SUMS_32
#undef MXKERN_SUMS_8
#undef MXKERN_NEW_128
#undef MXKERN_NEW_96
#undef MXKERN_NEW_64
#undef MXKERN_NEW_32
#undef MXKERN_NEW_8
// clang-format on

}  // namespace mxkern::ptx
