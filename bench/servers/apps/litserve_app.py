"""LitServe: one LitAPI, one worker, the same JSON in and out as the V2 protocol's."""
from __future__ import annotations
import argparse, os
from typing import Any
import litserve
import numpy as np
import orjson
from fastapi import Response

RESP = os.environ.get("RESP") == "1"

class Identity(litserve.LitAPI):
    def decode_request(self, request):
        t = request["inputs"][0]
        return np.array(t["data"], np.float32).reshape(t["shape"])
    def predict(self, x):
        return x
    def encode_response(self, output):
        if RESP:
            return Response(orjson.dumps({"model_name":"identity","outputs":[{"name":"output","datatype":"FP32","shape":output.shape,"data":output.ravel()}]},option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")
        return {"model_name":"identity","outputs":[{"name":"output","datatype":"FP32","shape":list(output.shape),"data":output.ravel().tolist()}]}

if __name__ == "__main__":
    p = argparse.ArgumentParser(); p.add_argument("--port", type=int); a = p.parse_args()
    s = litserve.LitServer(Identity(), accelerator="cpu", devices=1, workers_per_device=1, fast_queue=os.environ.get("FQ")=="1")
    if os.environ.get("ZMQ")=="1": s.transport_config.transport_type="zmq"
    if os.environ.get("ZMQ")=="1":
        import litserve.server as ss
        from litserve.transport.zmq_transport import ZMQTransport
        orig=ss.create_transport_from_config
        def fixed(c):
            t=orig(c); return ZMQTransport(t.frontend_address,t.backend_address)
        ss.create_transport_from_config=fixed
    print(s.transport_config)
    s.run(host="127.0.0.1", port=a.port, num_api_servers=1, log_level="warning", generate_client_file=False, access_log=False)
