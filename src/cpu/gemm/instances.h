// cpu/gemm/instances.h: the kernels of each unit, one object file each.
#pragma once

#include "cpu/gemm/kernels.h"

namespace mxkern::cpu {

extern const GemmKernels gemm_kernels_baseline;
extern const GemmKernels gemm_kernels_avx2;
extern const GemmKernels gemm_kernels_avx512;
extern const GemmKernels gemm_kernels_avx512_bf16;
extern const GemmKernels gemm_kernels_amx_bf16;
extern const GemmKernels gemm_kernels_baseline_few_rows;
extern const GemmKernels gemm_kernels_avx2_few_rows;
extern const GemmKernels gemm_kernels_avx512_few_rows;
extern const GemmKernels gemm_kernels_avx2_panels;
extern const GemmKernels gemm_kernels_avx512_panels;
extern const GemmKernels gemm_kernels_avx512_bf16_panels;

// Packing and finishing for the units that multiply bfloat16; they need AVX-512 and no more.
namespace bf16 {
void row_shifts(const GemmMatrix& matrix, std::int64_t row, std::int64_t count,
                std::int32_t* shifts, std::int32_t* spreads);
void pack_left(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
               void* out);
void pack_right(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                void* out);
bool are_at_least(float least, const float* sums, int rows, int columns);
void finish(const GemmFinish& finish, const float* sums, int rows, int columns,
            const std::int32_t* left_shifts, const std::int32_t* right_shifts, const float* bias,
            void* out);
}  // namespace bf16

}  // namespace mxkern::cpu
