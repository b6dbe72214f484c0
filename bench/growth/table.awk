# Makes the table of growth from lines `case bytes pushes instructions`, three for each case: no text, 100 KB, and 1 MB (or
# 10 KB where 100 KB took too long). The ratio is that of the instructions for ten times the text, less what no text takes.
# With `detail`, each case has a line; without, each group has one, with its worst case. Exits with 1 where a ratio is too high.

BEGIN { most = 10.5 }

{
    at = readings[$1]++
    if (at == 0) { order[++cases] = $1 }
    bytes[$1, at] = $2; pushes[$1, at] = $3; counted[$1, at] = $4
}

function small(name) { return bytes[name, 2] > bytes[name, 1] ? 1 : 2 }
function net(name, at) { return counted[name, at] - counted[name, 0] }
function each(name, at) { return pushes[name, at] ? net(name, at) / pushes[name, at] : 0 }

# Ten times the text is hardly ever exactly that, because texts are made of whole pieces.
function ratio(name,    low, high) {
    low = small(name); high = 3 - low
    return net(name, low) > 0 ? net(name, high) / net(name, low) * 10 / (bytes[name, high] / bytes[name, low]) : 0
}

END {
    if (cases == 0) { print "No case has such a name."; exit 1 }
    if (detail) {
        print "| case | instructions a push | ratio |"
        print "| --- | --- | --- |"
    } else {
        print "| dialect | instructions a push | among all dialects | ratio | the worst case | its ratio | a push |"
        print "| --- | --- | --- | --- | --- | --- | --- |"
    }
    for (i = 1; i <= cases; i++) {
        name = order[i]
        grown = ratio(name)
        if (grown > most) { bad[++failed] = sprintf("%s %.2f%s", name, grown, small(name) == 2 ? " (from 10 KB to 100 KB; 1 MB takes too long)" : "") }
        if (detail) { printf "| %s | %.0f | %.2f |\n", name, each(name, 3 - small(name)), grown; continue }
        split(name, parts, "/")
        group = parts[1]
        if (!(group in worst)) { groups[++known] = group; worst[group] = name }
        if (grown > ratio(worst[group])) { worst[group] = name }
    }
    for (i = 1; i <= known; i++) {
        group = groups[i]; value = group "/value"; auto = group "/value-auto"
        has = (value, 1) in counted
        printf "| %s | %s | %s | %s | %s | %.2f | %.0f |\n", group, has ? sprintf("%.0f", each(value, 3 - small(value))) : "", \
            (auto, 1) in counted ? sprintf("%.0f", each(auto, 3 - small(auto))) : "", has ? sprintf("%.2f", ratio(value)) : "", \
            substr(worst[group], length(group) + 2), ratio(worst[group]), each(worst[group], 3 - small(worst[group]))
    }
    printf "\n%d cases, ratio at most %s: ", cases, most
    if (!failed) { print "held." } else { print "missed by " failed "."; for (i = 1; i <= failed; i++) { print "* " bad[i] } }
    exit failed > 0
}
