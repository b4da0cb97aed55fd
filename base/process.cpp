// SPDX-License-Identifier: Apache-2.0
#include "base/process.hpp"

#include <sys/stat.h>

#include <fstream>
#include <random>

#include "base/fork.hpp"

namespace sluice::base {

namespace {

struct Token {
  std::uint64_t value = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
};
OnePerProcess<Token> g_token;

}  // namespace

const std::uint64_t& process_token() { return g_token->value; }

Host this_host() {
  Host host;
  struct stat network {};
  const bool known = std::ifstream("/proc/sys/kernel/random/boot_id").read(host.boot.data(), 36).gcount() == 36 &&
                     ::stat("/proc/self/ns/net", &network) == 0;
  return known ? Host{host.boot, network.st_ino} : Host{{}, process_token()};
}

}  // namespace sluice::base
