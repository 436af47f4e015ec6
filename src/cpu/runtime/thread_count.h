// cpu/runtime/thread_count.h: the number of threads in force, and where it comes from.
#pragma once

namespace mxkern {

struct ThreadCount {
  int threads;
  const char* from;  // in words for people
};

ThreadCount thread_count();

// The number without set_num_threads. said: MXKERN_NUM_THREADS, or null. Throws InvalidArgument.
ThreadCount default_thread_count(const char* said, int processors, int quota);

}  // namespace mxkern
