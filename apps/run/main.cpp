// SPDX-License-Identifier: Apache-2.0
// sluice-run: starts ranks on this host.
#include <sluice/run.hpp>

int main(int argc, char** argv) { return sluice::launch(argc, argv); }
