// bench/plan_times.cc: how long plans of products on an H200 take the host, in nanoseconds. Pure,
// so it needs no GPU. Built with -std=c++20 -O3 -Iinclude -Isrc, with src/plan/plan_few*.cc and
// src/plan/decode/cost_model.cc beside it, whose functions the library does not export, and
// libmxkern.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "mxkern/plan.h"
#include "plan/decode/plan.h"

namespace {

using namespace mxkern;

// The least of many, of which a busy machine disturbs some.
template <class Call>
double nanoseconds(Call&& call) {
  constexpr int calls = 100, repeats = 30;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int j = 0; j < calls; ++j) call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

struct Statistics {
  double sum = 0, most = 0;
  int count = 0;
  void add(double value) { sum += value, most = std::max(most, value), ++count; }
};

constexpr std::int64_t shapes[][2] = {{8192, 8192},  {28672, 8192}, {8192, 28672}, {4096, 4096},
                                      {14336, 4096}, {4096, 14336}, {128256, 4096}};
constexpr Scheme schemes[] = {Scheme::mxfp8_e4m3, Scheme::mxfp6_e2m3, Scheme::mxfp4, Scheme::nvfp4};

volatile std::size_t sink;  // what is computed is used

}  // namespace

int main() {
  std::printf("%6s %22s %22s\n", "tokens", "division: mean, most", "plan_gemm: mean, most");
  for (const std::int64_t tokens : {1, 8, 16, 17, 24, 32, 33, 64, 128, 256, 512, 1024, 2048}) {
    Statistics division, plan;
    for (const Scheme scheme : schemes) {
      for (const auto& [rows, columns] : shapes) {
        division.add(nanoseconds([&, rows = rows, columns = columns] {
          sink = static_cast<std::size_t>(
              may_use_few_sm90(DType::bfloat16, tokens)
                  ? plan_few_sm90(scheme, 1, tokens, rows, columns, 132).tokens
                  : plan_few(scheme, 1, tokens, rows, columns, 132).tokens);
        }));
        const GemmProblem problem(
            PlannedTensor(DType::bfloat16, {1, tokens, columns}),
            PlannedOperand(scheme, {1, rows, columns}).prepared(PreparedForm::few_tokens),
            PlannedTensor(DType::bfloat16, {1, tokens, rows}));
        plan.add(nanoseconds([&] { sink = plan_gemm(problem, "sm_90").workspace_bytes(); }));
      }
    }
    std::printf("%6d %11.0f %10.0f %11.0f %10.0f\n", static_cast<int>(tokens),
                division.sum / division.count, division.most, plan.sum / plan.count, plan.most);
  }
}
