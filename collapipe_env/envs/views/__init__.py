"""The same MDP through the interfaces of PettingZoo, MO-Gymnasium and Safety-Gymnasium."""
