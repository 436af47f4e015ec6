// check_gemm.h: the checks of the arguments of gemm.
#pragma once

#include <cstddef>

#include "mxkern/gemm.h"

namespace mxkern {

// Shapes, devices, pointers and overlaps of operands, output and bias. Throws InvalidArgument.
void check_gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                const GemmOptions& options);

// What a plan is made of: shapes, dtypes, schemes, forms. Memory is not looked at.
void check_gemm_kinds(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                      const GemmOptions& options);

// `bytes` of memory that is aligned and nobody else's. Arguments that check_gemm has checked.
void check_gemm_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& a,
                          const GemmRightOperand& b, const Buffer& out, const GemmOptions& options);

// A form that operands of the scheme may have. place: what stands ahead of "form", as in "a.form".
void check_form(const char* function, const char* place, PreparedForm form, Scheme scheme);

// A prepared operand's scheme, shape and form.
void check_form(const char* function, const char* argument, const PreparedOperand& operand);

// A prepared operand: its source, and memory for its form.
void check_prepared(const char* function, const char* argument, const PreparedOperand& operand);

}  // namespace mxkern
