// check_operands.cc: the checks that all matrix products have of their operands and their memory.
#include "check_operands.h"

#include <cstdint>
#include <variant>

#include "check.h"
#include "check_gemm.h"
#include "mxkern/prepare_operand.h"

namespace mxkern {
namespace {

void check_one(const char* function, const char* argument, const BlockScaled& q) {
  check_block_scaled(function, argument, q);
}
void check_one(const char* function, const char* argument, const Buffer& x) {
  check_buffer(function, argument, x);
}
void check_one(const char* function, const char* argument, const PreparedOperand& p) {
  check_prepared(function, argument, p);
}

void check_kind_of(const char* function, const char* argument, const BlockScaled& q) {
  check_kind(function, argument, q);
}
void check_kind_of(const char* function, const char* argument, const Buffer& x) {
  check_kind(function, argument, x);
  check_strides(function, argument, x);
}
void check_kind_of(const char* function, const char* argument, const PreparedOperand& p) {
  check_form(function, argument, p);
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

void check_operand(const char* function, const char* argument, const GemmOperand& a) {
  std::visit([&](const auto& left) { check_one(function, argument, left); }, a);
}
void check_operand(const char* function, const char* argument, const GemmRightOperand& b) {
  std::visit([&](const auto& right) { check_one(function, argument, right); }, b);
}

void check_operand_kind(const char* function, const char* argument, const GemmOperand& operand) {
  std::visit([&](const auto& one) { check_kind_of(function, argument, one); }, operand);
}

void check_precision(const char* function, GemmPrecision precision) {
  check(is_listed(precision, all_gemm_precisions), function, ": precision is number ",
        static_cast<int>(precision), "; expected one of the precisions");
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
