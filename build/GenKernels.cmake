# CUDA GEMM kernels that are emitted when the project is built. From find_package(gemmgen), or:
#
#   include(<checkout>/build/GenKernels.cmake)
#
#   gen_add_kernel(<target> VARIANT rec_tiles [DTYPE f32] [LAYOUT rrr] [NAME gemm_f32] ...)
#   gen_add_bundle(<target> FILE gemm.kernels [NAME gemm] [ARCH sm_80])
#   gen_add_embedded_kernel(<target> VARIANT tiles ARCH sm_80,sm_90 [EMBED cubin,ptx] [NAME f] ...)
#
# gen_add_kernel adds one kernel to a target of the same folder: its .cu, and a folder with its
# header, <name>.h, which C and C++ sources include. The words are the options of `gen emit`:
# SPLIT_K 4 is --split-k 4. ARCH is by default the lowest of the target's CUDA_ARCHITECTURES. All is
# checked when the project is configured; the files are made when it is built, and again when a
# template, the generator or a word changes.
#
# gen_add_bundle adds the kernels that FILE lists (relative to the current source folder), behind
# one function. gen_add_embedded_kernel adds C++ with machine code, or with PTX, which needs neither nvcc
# nor the CUDA toolkit; its ARCH may be several, separated by commas.

cmake_minimum_required(VERSION 3.24)

if(NOT GEMMGEN_EXECUTABLE)
  find_program(
    GEMMGEN_EXECUTABLE
    NAMES gemmgen gen
    DOC "The command gemmgen, or gen"
    HINTS "${CMAKE_CURRENT_LIST_DIR}/../.venv/bin" REQUIRED)
endif()

function(gen_add_kernel target)
  _gen_check_target(gen_add_kernel ${target} CUDA)
  _gen_options(gen_add_kernel options ${ARGN})
  if(NOT "--arch" IN_LIST options)
    _gen_default_arch(arch ${target})
    list(APPEND options ${arch})
  endif()
  _gen_emit(${target} --header ${options})
endfunction()

function(gen_add_bundle target)
  _gen_check_target(gen_add_bundle ${target} CUDA)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE;NAME;ARCH" "")
  if(NOT arg_FILE OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "gen_add_bundle(<target> FILE <file> [NAME <name>] [ARCH <sm>])")
  endif()
  get_filename_component(file "${arg_FILE}" ABSOLUTE)
  set(options --bundle "${file}")
  if(arg_NAME)
    list(APPEND options --name ${arg_NAME})
  endif()
  if(arg_ARCH)
    list(APPEND options --arch ${arg_ARCH})
  else()
    _gen_default_arch(arch ${target})
    list(APPEND options ${arch})
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  _gen_emit(${target} ${options})
endfunction()

function(gen_add_embedded_kernel target)
  _gen_check_target(gen_add_embedded_kernel ${target} CXX)
  _gen_options(gen_add_embedded_kernel options ${ARGN})
  if(NOT "--embed" IN_LIST options)
    list(APPEND options --embed cubin)
  endif()
  _gen_emit(${target} ${options})
  # For dlopen. Not by target_link_libraries, whose two forms do not mix in one target.
  set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES ${CMAKE_DL_LIBS})
  set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${CMAKE_DL_LIBS})
endfunction()

# Rules are seen by the targets of their own folder alone.
function(_gen_check_target function target language)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${function}: there is no target '${target}'; call add_library or "
                        "add_executable before")
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  if(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    message(FATAL_ERROR "${function}: the target '${target}' is made in ${folder}; call "
                        "${function} there")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT language IN_LIST languages)
    message(FATAL_ERROR "${function} needs the language ${language}: "
                        "project(<name> LANGUAGES ... ${language})")
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    message(FATAL_ERROR "${function}: '${target}' compiles nothing; use a library of another kind, "
                        "or an executable")
  endif()
endfunction()

# VARIANT rec_tiles SPLIT_K 4 -> --variant rec_tiles --split-k 4. Which of them there are is for
# gen to know.
function(_gen_options function result)
  set(options)
  while(ARGN)
    list(POP_FRONT ARGN word value)
    if(NOT word MATCHES "^[A-Z][A-Z0-9_]*$" OR "${value}" STREQUAL "")
      message(FATAL_ERROR "${function}: '${word}' '${value}' is not a word in capitals and its "
                          "value, such as DTYPE f32")
    endif()
    string(TOLOWER "--${word}" option)
    string(REPLACE "_" "-" option "${option}")
    list(APPEND options "${option}" "${value}")
  endwhile()
  set(${result} ${options} PARENT_SCOPE)
endfunction()

# The lowest architecture that the target is compiled for; nothing where that is not known (all,
# native).
function(_gen_default_arch result target)
  get_target_property(architectures ${target} CUDA_ARCHITECTURES)
  set(lowest)
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^([0-9]+)([af]?)")
      if(NOT lowest OR CMAKE_MATCH_1 LESS number)
        set(number ${CMAKE_MATCH_1})
        set(lowest --arch sm_${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      endif()
    endif()
  endforeach()
  set(${result} ${lowest} PARENT_SCOPE)
endfunction()

# Adds to the target what `gen emit` makes with these options.
function(_gen_emit target)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/gemmgen/${target}")
  set(command "${GEMMGEN_EXECUTABLE}" emit ${ARGN} -o "${folder}/")
  execute_process(
    COMMAND ${command} --dry-run
    RESULT_VARIABLE status
    OUTPUT_VARIABLE files
    ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " options)
    message(FATAL_ERROR "gen emit ${options}\n${error}")
  endif()
  string(REPLACE "\n" ";" files "${files}")
  list(GET files 0 source)
  get_filename_component(name "${source}" NAME_WE)

  # Makefiles do not notice that a command has changed; they notice files.
  set(words "${folder}/${name}.options")
  file(CONFIGURE OUTPUT "${words}" CONTENT "${ARGN}\n" @ONLY)
  set(depfile "${folder}/${name}.d")
  add_custom_command(
    OUTPUT ${files}
    COMMAND ${command} --depfile "${depfile}"
    DEPENDS "${words}"
    DEPFILE "${depfile}"
    COMMENT "Emitting ${name}"
    VERBATIM)
  target_sources(${target} PRIVATE ${files})

  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${folder}>")
  if(source MATCHES "\\.cu$")
    # The header includes cuda_runtime_api.h; nvcc finds it by itself, C and C++ compilers do not.
    target_include_directories(
      ${target} SYSTEM PUBLIC "$<BUILD_INTERFACE:${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}>")
    target_compile_features(${target} PRIVATE cuda_std_17)
  else()
    target_compile_features(${target} PRIVATE cxx_std_17)
  endif()
endfunction()
