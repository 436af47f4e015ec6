// cpu/kernels/make_table.h: the table of kernels of the instruction set that the including file is
// compiled for. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/dequantize_lines.h"
#include "cpu/kernels/finite_amax.h"
#include "cpu/kernels/hadamard_across.h"
#include "cpu/kernels/hadamard_lines.h"
#include "cpu/kernel_table.h"
#include "cpu/kernels/quantize_across.h"
#include "cpu/kernels/quantize_lines.h"
#include "cpu/kernels/random_words.h"
#include "cpu/kernels/swiglu_lines.h"
#include "cpu/kernels/transpose.h"

namespace mxkern::cpu {
namespace {

template <class S, class T>
constexpr void add_scheme(KernelTable& table) {
  constexpr int scheme = static_cast<int>(S::id);
  constexpr int dtype = static_cast<int>(dtype_of<T>::value);
  table.quantize[scheme][dtype][static_cast<int>(Rounding::nearest)] =
      quantize_lines<S, T, Rounding::nearest>;
  table.quantize[scheme][dtype][static_cast<int>(Rounding::stochastic)] =
      quantize_lines<S, T, Rounding::stochastic>;
  if constexpr (AcrossMemory::rows % S::block == 0) {
    table.quantize_across[scheme][dtype][static_cast<int>(Rounding::nearest)] =
        quantize_across<S, T, Rounding::nearest>;
    table.quantize_across[scheme][dtype][static_cast<int>(Rounding::stochastic)] =
        quantize_across<S, T, Rounding::stochastic>;
  }
  table.dequantize[scheme][dtype] = dequantize_lines<S, T>;
}

template <class T>
constexpr void add_dtype(KernelTable& table) {
  constexpr int dtype = static_cast<int>(dtype_of<T>::value);
#define MXKERN_ADD(Type) add_scheme<Type, T>(table);
  MXKERN_FOR_EACH_SCHEME(MXKERN_ADD)
#undef MXKERN_ADD
  table.finite_amax[dtype] = finite_amax<T>;
  table.hadamard[dtype] = hadamard_line<T>;
  table.hadamard_across[dtype] = hadamard_across<T>;
  table.swiglu[dtype][0] = swiglu_line<T, false>;
  table.swiglu[dtype][1] = swiglu_line<T, true>;
}

constexpr KernelTable make_table(const AnyKernels& any) {
  KernelTable table{};
  add_dtype<float>(table);
  add_dtype<float16>(table);
  add_dtype<bfloat16>(table);
  table.transpose_16 = transpose<std::uint16_t>;
  table.transpose_32 = transpose<std::uint32_t>;
  table.random_words = random_words;
  table.any = &any;
  return table;
}

}  // namespace
}  // namespace mxkern::cpu
