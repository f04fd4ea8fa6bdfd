# Completion of cellblock(1) for fish.

set -l commands run doctor policy version
set -l profiles 'base python node shell strict'

complete -c cellblock -f
complete -c cellblock -n "not __fish_seen_subcommand_from $commands" -a run -d 'Run a program in a cell'
complete -c cellblock -n "not __fish_seen_subcommand_from $commands" -a doctor -d 'Show what this machine can enforce'
complete -c cellblock -n "not __fish_seen_subcommand_from $commands" -a policy -d 'Show and check policies'
complete -c cellblock -n "not __fish_seen_subcommand_from $commands" -a version -d 'Print the version'
complete -c cellblock -l help -d 'Short help'

set -l run '__fish_seen_subcommand_from run'
complete -c cellblock -n $run -l policy -r -F -d 'Take the policy from a file'
complete -c cellblock -n $run -l tighten -r -F -d 'Combine with a policy that can only take away'
complete -c cellblock -n $run -l profile -x -a $profiles -d 'Start from a built-in profile'
complete -c cellblock -n $run -l workspace -x -a '(__fish_complete_directories)' -d 'Directory that the program works in'
complete -c cellblock -n $run -l scratch -d 'An empty workspace in memory'
complete -c cellblock -n $run -l read -r -F -d 'May be read'
complete -c cellblock -n $run -l write -r -F -d 'May be read and written'
complete -c cellblock -n $run -l hide -r -F -d 'May not be seen'
complete -c cellblock -n $run -l net -x -a 'loopback: udp://' -d 'May be connected to'
complete -c cellblock -n $run -l publish -x -d 'A port to show on the loopback of the host'
complete -c cellblock -n $run -l socket -r -F -d 'A unix socket that may be used'
complete -c cellblock -n $run -l env -x -a '(set -nx)' -d 'Pass a variable, or set it'
complete -c cellblock -n $run -l memory -x -d 'Limit on memory'
complete -c cellblock -n $run -l cpus -x -d 'Processors that it may keep busy'
complete -c cellblock -n $run -l disk -x -d 'Limit on bytes written to disk'
complete -c cellblock -n $run -l inodes -x -d 'Limit on files made'
complete -c cellblock -n $run -l network-bytes -x -d 'Limit on bytes to and from the network'
complete -c cellblock -n $run -l connections -x -d 'Limit on connections at the same time'
complete -c cellblock -n $run -l isolation -x -a 'auto namespaces landlock' -d 'The kind of cell'
complete -c cellblock -n $run -l accept-weaker -x -a 'namespaces protected-paths ids idmap landlock' -d 'Go without a protection'
complete -c cellblock -n $run -l cpu-time -x -d 'Limit on processor time'
complete -c cellblock -n $run -l timeout -x -d 'Limit on time'
complete -c cellblock -n $run -l procs -x -d 'Limit on processes'
complete -c cellblock -n $run -l open-files -x -d 'Limit on open files'
complete -c cellblock -n $run -l file-size -x -d 'Limit on the size of a file'
complete -c cellblock -n $run -l tmp -x -d 'Limit on temporary files'
complete -c cellblock -n $run -l output -x -d 'Limit on kept output'
complete -c cellblock -n $run -l strict -d 'Fewer system calls: no new processes, no sockets'
complete -c cellblock -n $run -l json -d 'Print one JSON document'
complete -c cellblock -n $run -l plan -d 'Print what would be enforced, start nothing'
# After "--" stands a command line of its own.
complete -c cellblock -n "$run; and contains -- -- (commandline -opc)" \
    -a '(complete -C (commandline -pc | string replace -r "^.*? -- +" ""))'

complete -c cellblock -n '__fish_seen_subcommand_from doctor' -l json -d 'Print JSON'

set -l policy '__fish_seen_subcommand_from policy'
set -l none "not __fish_seen_subcommand_from show check schema"
complete -c cellblock -n "$policy; and $none" -a show -d 'The policy as it is resolved'
complete -c cellblock -n "$policy; and $none" -a check -d 'What is wrong with policy files'
complete -c cellblock -n "$policy; and $none" -a schema -d 'The JSON Schema of policy files'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l policy -r -F -d 'Take the policy from a file'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l profile -x -a $profiles -d 'Built-in profile'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l tighten -r -F -d 'Can only take away'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l net -x -d 'With this rule'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l publish -x -d 'With this port'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from show" -l socket -r -F -d 'With this unix socket'
complete -c cellblock -n "$policy; and __fish_seen_subcommand_from check" -F
