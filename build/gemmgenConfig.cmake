# find_package(gemmgen): finds the command `gemmgen` and brings the functions of GenKernels.cmake.
#
#   cmake -S . -B build -Dgemmgen_DIR=$(gen --cmake-dir)
#
# GEMMGEN_EXECUTABLE  the command; the one of the same installation if it is not set

# In bin/ of the environment whose lib/python3.x/site-packages/gen/cmake this is, in bin/ beside
# the package (pip install --target), in .venv/ of a checkout; else on the PATH.
find_program(
  GEMMGEN_EXECUTABLE
  NAMES gemmgen gen
  DOC "The command gemmgen, or gen"
  HINTS
    "${CMAKE_CURRENT_LIST_DIR}/../../../../../bin"
    "${CMAKE_CURRENT_LIST_DIR}/../../bin"
    "${CMAKE_CURRENT_LIST_DIR}/../.venv/bin")

if(GEMMGEN_EXECUTABLE)
  # The name gen is short enough for another program to have it.
  execute_process(
    COMMAND "${GEMMGEN_EXECUTABLE}" --version
    OUTPUT_VARIABLE _gemmgen_found
    ERROR_VARIABLE _gemmgen_error
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _gemmgen_found MATCHES "^gemmgen [0-9]")
    set(gemmgen_FOUND FALSE)
    set(gemmgen_NOT_FOUND_MESSAGE
        "${GEMMGEN_EXECUTABLE} is not gemmgen's; set GEMMGEN_EXECUTABLE. ${_gemmgen_error}")
  endif()
else()
  set(gemmgen_FOUND FALSE)
  set(gemmgen_NOT_FOUND_MESSAGE
      "the command gemmgen is missing; install gemmgen, from its checkout or wheel, or set GEMMGEN_EXECUTABLE")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/GenKernels.cmake")
