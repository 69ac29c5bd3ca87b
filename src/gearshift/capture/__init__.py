"""Model -> Program: torch.export, ONNX files, the torch.compile backend.

Must not know plans or engines; it only says what the model computes.
"""
