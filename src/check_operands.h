// check_operands.h: the checks that all matrix products have of their operands and their memory.
#pragma once

#include <cstddef>

#include "mxkern/gemm.h"
#include "mxkern/tensor/planned_operand.h"
#include "overlap.h"

namespace mxkern {

// Shapes, kinds, and memory where there are elements.
void check_operand(const char* function, const char* argument, const GemmOperand& a);
void check_operand(const char* function, const char* argument, const GemmRightOperand& b);

// Each half of it. What a plan is made of: schemes, dtypes, shapes and strides, forms; and the
// memory of an operand of a valid kind.
void check_operand_kind(const char* function, const char* argument, const PlannedOperand& operand);
void check_operand_memory(const char* function, const char* argument, const GemmOperand& a);
void check_operand_memory(const char* function, const char* argument, const GemmRightOperand& b);

// One of the precisions that there are.
void check_precision(const char* function, GemmPrecision precision);

// Products on the CPU are exact, of codes and scales: throws Unsupported where folded ones are
// asked for, or an operand was prepared without its source.
void check_precision_of_cpu(const char* function, GemmPrecision precision);
void check_sources_for_cpu(const char* function, const PlannedOperand& a, const PlannedOperand& b);

// `bytes` of memory, aligned; none if there are none. `part` of an argument, as ".data".
void check_memory(const char* function, const char* argument, const char* part, const void* data,
                  std::size_t bytes, std::size_t alignment);

// Throws where what is written shares bytes with an operand.
void check_apart(const char* function, const Occupied& written, const GemmOperand& a,
                 const GemmRightOperand& b);

// Working memory of `bytes`, as much as wanted and apart from out; what it occupies.
Occupied check_workspace(const char* function, Workspace workspace, std::size_t bytes,
                         const Buffer& out);

}  // namespace mxkern
