// SPDX-License-Identifier: Apache-2.0
// A library that a test loads for itself alone.
extern "C" int sluice_test_answer();
extern "C" int sluice_test_answer() { return 42; }
