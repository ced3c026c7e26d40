"""Records inside your own mitmproxy: mitmdump -s record.py --mode reverse:http://127.0.0.1:9000

Options: --set replay_store=DIR replay_run=NAME replay_episode=NAME replay_undeclared=accept|refuse replay_idle=10m
replay_env=NAME=URL replay_keep_secrets=yes. An episode is named by the request: a path prefix
/rp/EPISODE, or the header X-Replay-Episode.
"""

from replayproxy.session.standalone import standalone_record_addon

addons = [standalone_record_addon()]
