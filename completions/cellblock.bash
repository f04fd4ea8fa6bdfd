# Completion of cellblock(1) for bash.

_cellblock()
{
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command=${COMP_WORDS[1]} i
    COMPREPLY=()

    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'run doctor policy version --help' -- "$word")
        return
    fi

    # After "--" stands a command line of its own.
    if [ "$command" = run ]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [ "${COMP_WORDS[i]}" = -- ]; then
                if [ $((i + 1)) -eq "$COMP_CWORD" ]; then
                    mapfile -t COMPREPLY < <(compgen -c -- "$word")
                else
                    compopt -o filenames
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                fi
                return
            fi
        done
    fi

    case $previous in
        --policy | --tighten | --read | --write | --hide | --socket)
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return ;;
        --workspace)
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -d -- "$word")
            return ;;
        --isolation)
            mapfile -t COMPREPLY < <(compgen -W 'auto namespaces landlock' -- "$word")
            return ;;
        --accept-weaker)
            mapfile -t COMPREPLY < <(compgen -W 'namespaces protected-paths ids idmap landlock' -- "$word")
            return ;;
        --profile)
            mapfile -t COMPREPLY < <(compgen -W 'base python node shell strict' -- "$word")
            return ;;
        --env)
            mapfile -t COMPREPLY < <(compgen -e -- "$word")
            return ;;
        --net)
            mapfile -t COMPREPLY < <(compgen -W 'loopback: udp://' -- "$word")
            return ;;
        --memory | --cpu-time | --cpus | --timeout | --procs | --open-files | --file-size | --disk | --inodes | --tmp | \
            --output | --network-bytes | --connections | --publish)
            return ;;
    esac

    case $command in
        run)
            mapfile -t COMPREPLY < <(compgen -W '--policy --tighten --profile --workspace --scratch --read --write
                --hide --net --publish --socket --env --memory --cpu-time --cpus --timeout --procs --open-files
                --file-size --disk --inodes --tmp
                --output --network-bytes --connections --isolation --accept-weaker --strict
                --json --plan --help --' -- "$word") ;;
        doctor)
            mapfile -t COMPREPLY < <(compgen -W '--json --help' -- "$word") ;;
        policy)
            if [ "$COMP_CWORD" -eq 2 ]; then
                mapfile -t COMPREPLY < <(compgen -W 'show check schema --help' -- "$word")
            elif [ "${COMP_WORDS[2]}" = show ]; then
                mapfile -t COMPREPLY < <(compgen -W '--policy --profile --tighten --net --publish --socket
                    --help' -- "$word")
            elif [ "${COMP_WORDS[2]}" = check ]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi ;;
    esac
}

complete -F _cellblock cellblock
