// SPDX-License-Identifier: Apache-2.0
// sluice-run: starts ranks on this machine.
#include <sluice/run.hpp>

int main(int argc, char** argv) { return sluice::launch(argc, argv); }
