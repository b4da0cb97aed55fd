# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev demo.

cmd_demo() {
  [ $# = 0 ] || bad_usage "demo takes no arguments"
  local python=''
  setup_preset apps
  (setup plots) || true  # without matplotlib there are results all the same
  python=$(plotting_python) || say "demo: matplotlib is not installed: no pictures"
  build apps jacobi heat life sluice-run sluice-info
  say "demo: jacobi, heat and life"
  python3 -B apps/demo.py --bin build/apps/bin --out build/demo --plots "$python"
  [ -z "$python" ] || say "demo: pictures: $(printf '%s ' build/demo/*.png)"
  cat <<'TEXT'

Try next:
  build/apps/bin/sluice-run -n 2 build/apps/bin/jacobi --stream host --trace trace.json    # then open trace.json in ui.perfetto.dev
  build/apps/bin/sluice-run -n 4 build/apps/bin/life --pattern apps/life/patterns/gosper_gun.rle -n 128 -t 600 --movie gun.gif
  build/apps/bin/sluice-info    # what this build can do here
TEXT
}
