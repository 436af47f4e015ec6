// tests/support/test_headers.cc: compiles GoogleTest's header ahead, once for all tests.
#include <gtest/gtest.h>
