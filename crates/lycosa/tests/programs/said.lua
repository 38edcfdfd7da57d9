-- What a statement of SQL says: `said(text)` prints its rows, their metadata and its counts, or its error.
local json = require('json')

local function said(text)
    local result, failure = box.execute(text)
    if not result then
        print(text, 'error', failure.code, failure.message)
        return
    end
    local columns = {}
    for place, column in ipairs(result.metadata or {}) do columns[place] = column.name .. ' ' .. column.type end
    print(text, result.row_count, table.concat(columns, ', '), json.encode(result.rows), json.encode(result.autoincrement_ids))
end

return said
