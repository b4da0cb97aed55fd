// SPDX-License-Identifier: Apache-2.0
#include "tests/mpix/programs.hpp"

int main(int argc, char** argv) { return run_mpix_programs(argc, argv, 1); }
