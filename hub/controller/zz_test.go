package controller
import ("testing";"os";"strconv")
func TestZZ(t *testing.T){
	of := map[string]*special{"steady":&steadyWorld,"extends":&extendsWorld,"steps":&stepsWorld,"two":&twoWorld,"away":&awayWorld}[os.Getenv("KIND")]
	n,_ := strconv.Atoi(os.Getenv("SEED"))
	var crew crew; defer crew.end()
	w := newWorldOf(of, uint64(n), os.Stdout, &crew); w.play(); t.Log(w.oracle.violation)
}
