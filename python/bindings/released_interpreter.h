// bindings/released_interpreter.h: work without the interpreter lock, up to the end of the
// interpreter.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace mxkern::bindings {

// Gives the lock away for the scope. Once the interpreter ends it ends a daemon thread that asks
// for the lock, by unwinding its stack, which C++ takes for a reason to abort the process. So from
// the exit handler on nobody asks: who comes back then sleeps until the process is over.
class ReleasedInterpreter {
 public:
  ReleasedInterpreter() : state_(closing_.load() ? nullptr : PyEval_SaveThread()) {}

  ~ReleasedInterpreter() {
    if (state_ == nullptr) return;
    ++returning_;
    if (closing_.load()) {
      --returning_;
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    PyEval_RestoreThread(state_);
    --returning_;
  }

  ReleasedInterpreter(const ReleasedInterpreter&) = delete;
  ReleasedInterpreter& operator=(const ReleasedInterpreter&) = delete;

  // The exit handler: lets those pass that have asked already.
  static void close() {
    closing_.store(true);
    PyThreadState* state = PyEval_SaveThread();
    while (returning_.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    PyEval_RestoreThread(state);
  }

 private:
  inline static std::atomic<bool> closing_{false};
  inline static std::atomic<int> returning_{0};

  PyThreadState* state_;
};

}  // namespace mxkern::bindings
