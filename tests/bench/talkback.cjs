// One taped answer for every path.    node talkback.cjs PORT NODE_MODULES FOLDER
const [port, modules, folder] = process.argv.slice(2)
const talkback = require(modules + "/talkback")
const fs = require("fs")
const path = require("path")
const body = fs.readFileSync(path.join(folder, "small.json"), "utf8")
const tapes = path.join(folder, "tapes")
fs.mkdirSync(tapes)
const tape = {
  meta: { createdAt: new Date().toISOString(), host: "http://127.0.0.1:9", resHumanReadable: true },
  req: { headers: {}, url: "/deals/1", method: "GET", body: "" },
  res: { status: 200, headers: { "content-type": ["application/json"] }, body: JSON.parse(body) },
}
fs.writeFileSync(path.join(tapes, "one.json5"), JSON.stringify(tape))
talkback({
  host: "http://127.0.0.1:9", port: Number(port), path: tapes, record: talkback.Options.RecordMode.DISABLED,
  fallbackMode: talkback.Options.FallbackMode.NOT_FOUND, silent: true, summary: false, allowHeaders: [],
}).start()
