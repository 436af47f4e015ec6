// check/gemm.h: the checks of the arguments of matrix products: those that all of them have, and
// those of gemm.
#pragma once

#include <cstddef>
#include <variant>

#include "mxkern/gemm.h"
#include "mxkern/plan.h"
#include "mxkern/tensor/planned_operand.h"
#include "check/arguments.h"

namespace mxkern {

// One of the precisions that there are.
void check_precision(const char* function, GemmPrecision precision);

// Products on the CPU are exact, of codes and scales: throws Unsupported where folded ones are
// asked for, or an operand was prepared without its source.
void check_precision_of_cpu(const char* function, GemmPrecision precision);
// Panels of b are enough where products are of rows.
void check_sources_for_cpu(const char* function, const PlannedOperand& a, const PlannedOperand& b,
                           bool takes_panels = true);

// `bytes` of memory, aligned; none if there are none. `part` of an argument, as ".data".
void check_memory(const char* function, const char* argument, const char* part, const void* data,
                  std::size_t bytes, std::size_t alignment);

// Throws where what is written shares bytes with an operand.
void check_apart(const char* function, const Occupied& written, const GemmOperand& a,
                 const GemmRightOperand& b);

// Working memory of `bytes`, as much as wanted and apart from out; what it occupies.
Occupied check_workspace(const char* function, Workspace workspace, std::size_t bytes,
                         const Buffer& out);

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
void check_memory(const char* function, const char* argument, const PreparedOperand& operand);
void check_prepared(const char* function, const char* argument, const PreparedOperand& operand);

// Checks what a plan asks of an operand: its scheme or dtype, shape, strides and form.
void check_operand_kind(const char* function, const char* argument, const PlannedOperand& operand);

// The memory of one of a valid kind; and all of it.
template <class... Kinds>
void check_memory(const char* function, const char* argument,
                  const std::variant<Kinds...>& operand) {
  std::visit([&](const auto& one) { check_memory(function, argument, one); }, operand);
}
template <class... Kinds>
void check_operand(const char* function, const char* argument,
                   const std::variant<Kinds...>& operand) {
  check_operand_kind(function, argument, operand);
  check_memory(function, argument, operand);
}

}  // namespace mxkern
