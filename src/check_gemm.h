// check_gemm.h: the checks of the arguments of gemm.
#pragma once

#include <cstddef>

#include "mxkern/gemm.h"
#include "mxkern/plan.h"

namespace mxkern {

// The checks of gemm's arguments, each of which throws InvalidArgument. First what a plan is made
// of, shapes, dtypes, schemes and forms, of which memory is no part:
void check_gemm_problem(const GemmProblem& problem);
void check_gemm_bias(const GemmOptions& options, const Shape& out);
// then that everything is on out's device, which this build can work on:
void check_gemm_devices(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                        const GemmOptions& options);
// then pointers and overlaps.
void check_gemm_memory(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                       const GemmOptions& options);

// `bytes` of memory that is aligned and nobody else's. Arguments that are checked.
void check_gemm_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& a,
                          const GemmRightOperand& b, const Buffer& out, const GemmOptions& options);

// A form that operands of the scheme may have. place: what stands ahead of "form", as in "a.form".
void check_form(const char* function, const char* place, PreparedForm form, Scheme scheme);

// A prepared operand's scheme, shape and form.
void check_form(const char* function, const char* argument, const PreparedOperand& operand);

// Memory for the source and the form of a prepared operand whose kind is valid; and all of it.
void check_prepared_memory(const char* function, const char* argument,
                           const PreparedOperand& operand);
void check_prepared(const char* function, const char* argument, const PreparedOperand& operand);

}  // namespace mxkern
