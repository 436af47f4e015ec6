// tests/support/painted_stack.h: how much of a thread's stack a call takes.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <new>

namespace mxkern::test {

// A thread whose stack is painted before a call; afterwards the deepest byte that lost its paint
// says how far the call went.
class PaintedStack {
 public:
  PaintedStack() {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stack_ = static_cast<unsigned char*>(memory);
  }
  ~PaintedStack() { munmap(stack_, bytes); }
  PaintedStack(const PaintedStack&) = delete;
  PaintedStack& operator=(const PaintedStack&) = delete;

  // The first call of a thread makes what it keeps, and the first one of a process looks up the
  // functions of other libraries: it is the second one that is measured.
  std::size_t used_by(const std::function<void()>& call) {
    call_ = &call;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack_, bytes);
    pthread_t thread;
    const int error = pthread_create(&thread, &attributes, &PaintedStack::run, this);
    pthread_attr_destroy(&attributes);
    if (error != 0) throw std::bad_alloc();
    pthread_join(thread, nullptr);
    return used_;
  }

 private:
  static constexpr std::size_t bytes = 256 * 1024;
  static constexpr int paint = 0xA5;

  static void* run(void* self) {
    static_cast<PaintedStack*>(self)->measure();
    return nullptr;
  }

  [[gnu::noinline]] void measure() {
    auto* const top = static_cast<unsigned char*>(__builtin_frame_address(0));
    // Room for this frame and for memset's own.
    constexpr std::size_t own = 1024;
    (*call_)();
    std::memset(stack_, paint, static_cast<std::size_t>(top - stack_) - own);
    (*call_)();
    const unsigned char* deepest = stack_;
    while (*deepest == paint) ++deepest;
    used_ = static_cast<std::size_t>(top - deepest);
  }

  unsigned char* stack_;
  const std::function<void()>* call_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace mxkern::test
