# What the checks of the benchmarks' JSON share: they look into `document`.

# get(variable path...): fails where there is no such entry.
macro(get variable)
  string(JSON ${variable} GET "${document}" ${ARGN})
endmacro()

function(require_positive)
  get(value ${ARGV})
  if(NOT value GREATER 0)
    message(FATAL_ERROR "${ARGV}: ${value} is not above 0")
  endif()
endfunction()

# require_equal(wanted path...).
function(require_equal wanted)
  get(value ${ARGN})
  if(NOT value STREQUAL wanted)
    message(FATAL_ERROR "${ARGN}: '${value}' instead of '${wanted}'")
  endif()
endfunction()

# require_length(length path...): so many entries.
function(require_length length)
  string(JSON n LENGTH "${document}" ${ARGN})
  if(NOT n EQUAL length)
    message(FATAL_ERROR "${ARGN}: ${n} entries instead of ${length}")
  endif()
endfunction()
