// check_operands.cc: the checks that all matrix products have of their operands and their memory.
#include "check_operands.h"

#include <cstdint>
#include <string>
#include <variant>

#include "check.h"
#include "check_gemm.h"
#include "mxkern/prepare_operand.h"

namespace mxkern {
namespace {

void check_one(const char* function, const char* argument, const BlockScaled& q) {
  check_parts(function, argument, q);
}
void check_one(const char* function, const char* argument, const Buffer& x) {
  check_buffer_memory(function, argument, x);
}
void check_one(const char* function, const char* argument, const PreparedOperand& p) {
  check_prepared_memory(function, argument, p);
}

void check_alignment(const char* function, const char* argument, int alignment, int most) {
  check(alignment > 0 && alignment <= most && most % alignment == 0, function, ": ", argument,
        " has an alignment of ", alignment, "; expected a power of two up to ", most);
}

void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const Buffer& x) {
  check_apart(function, out, {argument, x});
}
void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const BlockScaled& q) {
  for (const Occupied& part : OccupiedParts(argument, q).part) check_apart(function, out, part);
}
void check_one_apart(const char* function, const Occupied& out, const char* argument,
                     const PreparedOperand& p) {
  if (p.has_source()) check_one_apart(function, out, argument, p.source);
  // What its form takes: more bytes than these are nobody's to read.
  const std::size_t bytes = prepared_bytes(p.form, p.source.scheme, p.source.shape);
  check_apart(function, out, {argument, ".data", p.data, bytes});
}

}  // namespace

void check_operand_kind(const char* function, const char* argument, const PlannedOperand& operand) {
  if (operand.is_plain) {
    const PlannedTensor& x = operand.plain;
    const Buffer view{nullptr, x.dtype, x.shape, x.row_stride, x.batch_stride, {}};
    check_kind(function, argument, view);
    check_strides(function, argument, view);
    return check_alignment(function, argument, x.alignment, PlannedTensor::most_aligned);
  }
  BlockScaled q;
  q.scheme = operand.scheme;
  q.shape = operand.shape;
  q.scale_layout = operand.scale_layout;
  check_kind(function, argument, q);
  check_alignment(function, argument, operand.alignment, PlannedOperand::most_aligned);
  check_alignment(function, argument, operand.scale_alignment, PlannedOperand::most_scales_aligned);
  if (operand.form == PreparedForm::source) return;
  check_form(function, (std::string(argument) + ".").c_str(), operand.form, operand.scheme);
}

void check_operand_memory(const char* function, const char* argument, const GemmOperand& a) {
  std::visit([&](const auto& left) { check_one(function, argument, left); }, a);
}
void check_operand_memory(const char* function, const char* argument, const GemmRightOperand& b) {
  std::visit([&](const auto& right) { check_one(function, argument, right); }, b);
}

void check_operand(const char* function, const char* argument, const GemmOperand& a) {
  check_operand_kind(function, argument, a);
  check_operand_memory(function, argument, a);
}
void check_operand(const char* function, const char* argument, const GemmRightOperand& b) {
  check_operand_kind(function, argument, b);
  check_operand_memory(function, argument, b);
}

void check_precision(const char* function, GemmPrecision precision) {
  check(is_listed(precision, all_gemm_precisions), function, ": precision is number ",
        static_cast<int>(precision), "; expected one of the precisions");
}

void check_precision_of_cpu(const char* function, GemmPrecision precision) {
  check<Unsupported>(precision != GemmPrecision::folded, function,
                     ": precision is folded, and the CPU's products are exact; leave precision "
                     "out");
}

void check_sources_for_cpu(const char* function, const PlannedOperand& a, const PlannedOperand& b) {
  const auto check_source = [&](const char* argument, const PlannedOperand& operand) {
    check<Unsupported>(operand.has_source, function, ": ", argument,
                       " was prepared without its codes and scales, which are what the CPU "
                       "multiplies; keep the source, or multiply on the device");
  };
  check_source("a", a);
  check_source("b", b);
}

void check_memory(const char* function, const char* argument, const char* part, const void* data,
                  std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return;
  check(data != nullptr, function, ": ", argument, part, " is null; expected memory for ", bytes,
        " bytes");
  check_aligned(function, argument, part, data, alignment);
}

void check_apart(const char* function, const Occupied& written, const GemmOperand& a,
                 const GemmRightOperand& b) {
  std::visit([&](const auto& left) { check_one_apart(function, written, "a", left); }, a);
  std::visit([&](const auto& right) { check_one_apart(function, written, "b", right); }, b);
}

Occupied check_workspace(const char* function, Workspace workspace, std::size_t bytes,
                         const Buffer& out) {
  const bool on_cpu = out.device.type == DeviceType::cpu;
  const std::uintptr_t alignment = on_cpu ? 64 : 256;
  check(workspace.bytes >= bytes, function, ": workspace has ", workspace.bytes,
        " bytes; expected at least ", bytes, "; ask ", function, "_workspace_bytes");
  check_memory(function, "workspace", "", workspace.data, bytes, alignment);
  const Occupied written("workspace", "", workspace.data, bytes);
  check_apart(function, written, {"out", out});
  return written;
}

}  // namespace mxkern
