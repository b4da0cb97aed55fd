// SPDX-License-Identifier: Apache-2.0
#include "tests/mpis/programs.hpp"

int main(int argc, char** argv) { return argc > 1 ? run_mpis_programs(argc, argv, 1) : 2; }
